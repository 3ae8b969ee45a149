package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
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
