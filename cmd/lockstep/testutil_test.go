package main

import (
	"io"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"

	"lockstep/internal/testcluster"
)

// runCLI runs the lockstep program and returns what it wrote, and its exit code.
func runCLI(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctxFor(t, time.Minute), path, args...)
	b, _ := cmd.CombinedOutput()
	return string(b), cmd.ProcessState.ExitCode()
}

// given are the addresses that freeAddr has given out: nobody may listen there
// yet, so they would be found free again.
var given sync.Map

func freeAddr(t *testing.T) string {
	for {
		addrs, err := testcluster.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, taken := given.LoadOrStore(addrs[0], true); !taken {
			return addrs[0]
		}
	}
}

func get(url string) string {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
