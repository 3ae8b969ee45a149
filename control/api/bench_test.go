package api

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/wire"
)

// BenchmarkMetadata answers for all of 100 topics of 100 partitions, and for one.
func BenchmarkMetadata(b *testing.B) {
	bed := newBed(b)
	for i := range 100 {
		bed.topic(fmt.Sprintf("topic-%03d", i), byte(i+1), 100)
	}
	all, one := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataRequest()
	one.Topics = []kmsg.MetadataRequestTopic{{Topic: ptr("topic-050")}}
	for name, q := range map[string]*kmsg.MetadataRequest{"all": all, "one": one} {
		q.SetVersion(12)
		body := q.AppendTo(nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if bed.serve(wire.KeyMetadata, 12, "PLAINTEXT", body) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}
