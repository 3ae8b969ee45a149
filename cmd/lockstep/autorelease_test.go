package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/wire"
	"lockstep/plugins/host"
	"lockstep/plugins/sdk"
	"lockstep/plugins/sdk/conformance"
)

// examplePlugin builds a policy of the module plugins/examples.
func examplePlugin(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", path, "./"+name)
	cmd.Dir = "../../plugins/examples"
	cmd.Env = append(os.Environ(), "GOFLAGS=") // the module is not the broker's: its build has no tags of ours
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not build: %v\n%s", name, err, out)
	}
	return path
}

// The examples pass the suite as the broker runs them: as processes.
func TestExamplePluginsConform(t *testing.T) {
	sockets, err := host.SocketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	for name, kind := range map[string]sdk.Kind{"autorelease": sdk.Release, "patient": sdk.Promotion} {
		path := examplePlugin(t, name)
		sum, err := host.Checksum(path)
		if err != nil {
			t.Fatal(err)
		}
		l := &host.Launcher{Kind: kind, Log: os.Stderr, Sockets: sockets}
		p, err := l.Launch(host.Spec{Path: path, SHA256: sum})
		if err != nil {
			t.Fatal(err)
		}
		seed := rand.Uint64()
		t.Logf("%s: seed %d, pid %d", name, seed, p.Pid())
		if d := p.Plugin().Describe(); d.Kind != kind || d.Name != name {
			t.Errorf("%+v", d)
		}
		for _, v := range conformance.Check(kind, p.Plugin(), seed) {
			t.Errorf("%s: %s", name, v)
		}
		p.Kill()
	}
}

// With autorelease and the operator's word, producers are blocked by a dead
// destination for that long and no longer; with the default policy, until an
// operator releases.
func TestAutorelease(t *testing.T) {
	ctx := ctxFor(t, 2*time.Minute)
	const after = 3 * time.Second
	p := startPair(t, 0, "lockstep.mirror.auto.release.ms=3000", "mirror.sync.topic.demote.timeout.ms=1000")
	id := p.topic(ctx, "orders", 2, nil)
	p.mirror(ctx, true, "orders")
	p.until(ctx, "SYNC", 20*time.Second, inSync)
	c, err := dialRaw(p.src.addr)
	if err != nil {
		t.Fatal(err)
	}
	write := func(limit time.Duration) (produced, time.Duration) {
		t.Helper()
		began := time.Now()
		r, err := c.produce(14, "orders", id, 0, limit, []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		return r, time.Since(began)
	}
	if r, _ := write(5 * time.Second); r.code != wire.ErrNone {
		t.Fatalf("%+v", r)
	}
	p.dst.kill()
	if r, _ := write(2 * after); r.code != wire.ErrMirrorSyncReplicationTimeout {
		t.Fatalf("the default policy has released: %+v", r)
	}
	if out, rc := runCLI(t, "plugins", "swap", "release", examplePlugin(t, "autorelease"), "--admin-listener", p.src.admin); rc != 0 {
		t.Fatal(out)
	}
	if r, took := write(20 * time.Second); r.code != wire.ErrNone || took > after+5*time.Second {
		t.Fatalf("after %v: %+v\n%s", took, r, p.src.tail())
	}
	eventually(t, "the log says who released", 2*time.Second, func() bool { return strings.Contains(p.src.tail(), "released by the release policy") })
	eventually(t, "the journal has the release once", 2*time.Second, func() bool {
		accepted := 0
		for _, e := range p.src.journal(sdk.Release) {
			for _, v := range e.Verdicts {
				if v.Accepted && v.Do == sdk.ReleaseSync {
					accepted++
				}
			}
		}
		return accepted == 1
	})
	p.dst.start()
	p.until(ctx, "SYNC again", 40*time.Second, inSync) // by a recovery
	if r, _ := write(10 * time.Second); r.code != wire.ErrNone {
		t.Errorf("%+v", r)
	}
}
