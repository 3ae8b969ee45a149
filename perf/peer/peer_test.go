package peer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/internal/testcluster"
)

func TestLifeOfABroker(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary, err := testcluster.Build(ctx, dir)
	if err != nil {
		t.Fatalf("the lockstep program cannot be built: %v", err)
	}
	b, err := Lockstep(dir, "ours", binary, "lockstep.flush.ack=durable")
	if err != nil {
		t.Fatal(err)
	}
	if b.CPU() != 0 || b.RSS() != 0 || b.Pid() != 0 {
		t.Error("a broker that does not run uses something")
	}
	for range 2 { // and again, on the same data
		if err := b.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if b.Spawn() == nil {
			t.Error("started twice")
		}
		if b.RSS() < 5<<20 || b.CPU() <= 0 {
			t.Errorf("%d bytes, %v", b.RSS(), b.CPU())
		}
		pid := b.Pid()
		b.Stop()
		if syscall.Kill(pid, 0) == nil || b.Pid() != 0 {
			t.Error("stopped, and still there")
		}
	}
	bad, err := Lockstep(dir, "bad", binary, "no.such.setting=1")
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Start(ctx); err == nil || !strings.Contains(err.Error(), "no.such.setting") {
		t.Errorf("a broker that cannot start: %v", err)
	}
}

// TestMissing: without a JVM, and without Maven and jars, it says what is not
// there.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	for _, tool := range []string{"java", "mvn"} {
		if _, err := Jars(context.Background()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), tool) {
			t.Errorf("without %s: %v", tool, err)
		}
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\necho the registry is not to be reached\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Jars(context.Background()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "registry") {
		t.Errorf("Maven fails: %v", err)
	}
	libs := filepath.Join(dir, "cache", "lockstep", "kafka-"+Version, "libs")
	if err := errors.Join(os.MkdirAll(libs, 0o755), os.WriteFile(filepath.Join(libs, "kafka_2.13-"+Version+".jar"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := Jars(context.Background()); err != nil || got != libs {
		t.Errorf("jars that are there: %s, %v", got, err)
	}
}
