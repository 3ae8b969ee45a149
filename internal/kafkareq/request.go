package kafkareq

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/internal/msg"
)

// request is a kmsg.Request over a generated message.
type request struct {
	msg.Message
	resp msg.Message
}

func (r *request) Key() int16                  { return r.APIKey() }
func (r *request) ResponseKind() kmsg.Response { return &response{r.resp} }

// response is a kmsg.Response over a generated message.
type response struct{ msg.Message }

func (r *response) Key() int16                { return r.APIKey() }
func (r *response) RequestKind() kmsg.Request { return &request{resp: r.Message} }

// Options lets a client send keys that franz-go does not know.
func Options() []kgo.Opt { return []kgo.Opt{kgo.MaxVersions(nil)} }

// Do sends req to any broker of the client's cluster and fills resp. The client
// was made with Options.
func Do(ctx context.Context, cl *kgo.Client, req, resp msg.Message) error {
	got, err := cl.Request(ctx, &request{req, resp})
	if err != nil {
		return fmt.Errorf("request %d: %w", req.APIKey(), err)
	}
	r, ok := got.(*response)
	if !ok || r.Message != resp {
		return fmt.Errorf("request %d: unexpected response %T", req.APIKey(), got)
	}
	return nil
}
