package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// says is what describe says of the pair's one topic, annotation and errors.
func (p *pair) says(t *testing.T) (text string, effective int8) {
	t.Helper()
	list := p.describe(ctxFor(t, 10*time.Second))
	if len(list) != 1 {
		return "", -1
	}
	text = deref(list[0].Annotation)
	for _, q := range list[0].Partitions {
		text += "; " + q.StateValue + " " + deref(q.ErrorMessage)
	}
	return text, list[0].EffectiveMirrorType
}

// A topic that the source deletes and makes anew is another topic: what is
// acknowledged there is not here, and describe must not say SYNC.
func TestRecreatedSourceTopic(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 2, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	if _, err := kadm.NewClient(p.srcCl).DeleteTopic(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	var said string
	eventually(t, "not SYNC", 5*time.Second, func() bool {
		var effective int8
		said, effective = p.says(t)
		return effective == 0 && strings.Contains(said, "NOT IN SYNC")
	})
	id := p.topic(ctx, "orders", 2, nil)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r, err := c.produce(14, "orders", id, 0, 5*time.Second, []byte("v")); err != nil || r.code != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		if said, effective := p.says(t); effective != 0 {
			t.Fatalf("acknowledged without the destination, which says SYNC: %s", said)
		}
	}
	eventually(t, "FAILED, with the reason", 10*time.Second, func() bool {
		said, _ = p.says(t)
		return strings.Contains(said, "FAILED the source's topic was deleted and made anew")
	})
	t.Log(said)
	if out, code := runCLI(t, "cluster", "health", "--bootstrap-server", p.dst.addr); code != 10 || !strings.Contains(out, "orders") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// An address that comes back as another cluster is not the mirror's source.
func TestSourceIsAnotherCluster(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0)
	p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	p.src.kill()
	if err := os.Rename(p.src.dir, p.src.dir+".old"); err != nil {
		t.Fatal(err)
	}
	p.src.start()
	p.topic(ctx, "orders", 1, nil)
	p.topic(ctx, "more", 1, nil)
	var said string
	eventually(t, "FAILED, with the reason, and not SYNC", 10*time.Second, func() bool {
		var effective int8
		said, effective = p.says(t)
		return effective == 0 && strings.Contains(said, "FAILED bootstrap.servers leads to cluster ")
	})
	t.Log(said)
	if out, code := runCLI(t, "mirrors", "add", mirrorName, "--topics", "more", "--bootstrap-server", p.dst.addr); code == 0 || !strings.Contains(out, "bootstrap.servers leads to cluster") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// A release made while the destination was away: it must not say SYNC from the
// source's first word on, and comes back to it by itself.
func TestReleasedWhileAway(t *testing.T) {
	ctx := ctxFor(t, time.Minute)
	p := startPair(t, 0, "mirror.sync.topic.demote.timeout.ms=3000")
	id := p.topic(ctx, "orders", 1, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	p.dst.kill()
	p.release(ctx)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.produce(14, "orders", id, 0, 5*time.Second, []byte("v")); err != nil || r.code != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	p.dst.start()
	bare := 0
	eventually(t, "SYNC again", 20*time.Second, func() bool {
		list := p.describe(ctx)
		if len(list) != 1 {
			return false
		}
		released := p.src.metric(registeredHere) == 0
		if said := deref(list[0].Annotation); inSync(list[0]) && released && p.src.metric(registeredHere) == 0 {
			if !strings.Contains(said, "not known here") {
				t.Fatalf("released at the source, and the destination says SYNC: %q", said)
			}
			bare++
		}
		return inSync(list[0]) && p.src.metric(registeredHere) == 1
	})
	t.Logf("for %d looks the source had not answered yet", bare)
}
