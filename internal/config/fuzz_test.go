package config

import (
	"reflect"
	"testing"
)

// FuzzLoad: any properties text and any override are refused or make a
// Config within its own rules, the same one each time.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("node.id=1\nlog.dirs=/a,/b\nlisteners=PLAINTEXT://:9092\n"), "log.segment.bytes=1048576")
	f.Add([]byte("listeners=A://[::1]:1,B://h:2\nlistener.security.protocol.map=A:SSL,B:PLAINTEXT\nadvertised.listeners=A://h:0\n"), "lockstep.flush.ack=durable")
	f.Add([]byte("a\\\n  b : c\\u0041 ${x}\n!x\n#y\n"), "=")
	f.Add([]byte("controller.quorum.voters=1@h:1,1@h:1\nlog.retention.hours=-2"), "num.partitions=99999999999")
	f.Fuzz(func(t *testing.T, text []byte, override string) {
		c, warnings, err := Load(text, []string{override})
		again, warnings2, err2 := Load(text, []string{override})
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() || !reflect.DeepEqual(warnings, warnings2) || !reflect.DeepEqual(c, again) {
			t.Fatalf("loaded twice: %v and %v", err, err2)
		}
		if err != nil {
			return
		}
		c.Values()
		switch {
		case len(c.LogDirs) == 0 || c.NodeID < 0 || !c.Broker && !c.Controller:
			t.Fatalf("no directory, no id or no role: %+v", c)
		case c.SegmentBytes < 1<<20 || c.RequestMaxBytes < 1 || c.NumPartitions < 1 || c.MinInsyncReplicas < 1:
			t.Fatalf("out of range: %+v", c)
		case c.FlushAck != FlushAppended && c.FlushAck != FlushDurable:
			t.Fatalf("flush.ack %q", c.FlushAck)
		}
		for _, l := range append(c.Listeners, c.Advertised...) {
			if l.Name == "" || l.Port < 0 || l.Port > 65535 || l.Protocol == "" {
				t.Fatalf("listener %+v", l)
			}
		}
	})
}
