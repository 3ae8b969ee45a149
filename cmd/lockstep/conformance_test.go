package main

import (
	"math/rand/v2"
	"os"
	"testing"

	"lockstep/plugins/host"
	"lockstep/plugins/sdk/conformance"
)

// The default policies pass the suite as the broker runs them: as processes.
func TestDefaultPluginsConform(t *testing.T) {
	sum, err := host.Checksum("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := host.SocketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	for _, kind := range kinds {
		l := &host.Launcher{Kind: kind, Log: os.Stderr, Sockets: sockets}
		p, err := l.Launch(host.Spec{Path: "/proc/self/exe", Args: []string{"plugin", string(kind)}, SHA256: sum})
		if err != nil {
			t.Fatal(err)
		}
		seed := rand.Uint64()
		t.Logf("%s: seed %d, pid %d", kind, seed, p.Pid())
		if d := p.Plugin().Describe(); d != defaults[kind].Describe() {
			t.Errorf("%+v", d)
		}
		for _, v := range conformance.Check(kind, p.Plugin(), seed) {
			t.Errorf("%s: %s", kind, v)
		}
		p.Kill()
		if why, over := p.Exited(); !over {
			t.Errorf("%s: not over: %s", kind, why)
		}
	}
}
