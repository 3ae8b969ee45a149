package host

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// What a killed broker left is removed by the next one; what a living one has
// stays.
func TestSocketDirSweeps(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "ls")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	t.Setenv("TMPDIR", base)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	mine, err := SocketDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mine); !os.IsNotExist(err) {
		t.Error("it is there before a plugin has made it: who would remove it?", err)
	}
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(base, "lockstep-plugins-"+strconv.Itoa(dead.Process.Pid)+"-7")
	if err := os.MkdirAll(filepath.Join(left, "c1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := SocketDir(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error("a dead broker's is still there")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// A paced hash is the hash, with rests.
func TestPacedHash(t *testing.T) {
	rests := time.Duration(0)
	p := &paced{Hash: sha256.New(), sleep: func(d time.Duration) { rests += d }}
	data := make([]byte, 10*pacedBytes+5)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for b := data; len(b) > 0; {
		n := min(len(b), 32<<10)
		if _, err := p.Write(b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	if want := sha256.Sum256(data); !bytes.Equal(p.Sum(nil), want[:]) || rests != 10*pacedRest {
		t.Errorf("rested %v, or another hash", rests)
	}
}
