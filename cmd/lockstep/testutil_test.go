package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"testing"
	"time"
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

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
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
