package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"lockstep/internal/wire"
)

// forbidRing makes io_uring's system calls answer EPERM, as the default seccomp
// profiles of container runtimes do, and becomes the broker.
func forbidRing(args []string) error {
	runtime.LockOSThread()
	ins := func(code uint16, jt, jf uint8, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
	}
	filter := []unix.SockFilter{
		ins(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0), // the call's number
		ins(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 2, unix.SYS_IO_URING_SETUP),
		ins(unix.BPF_JMP|unix.BPF_JGT|unix.BPF_K, 1, 0, unix.SYS_IO_URING_REGISTER),
		ins(unix.BPF_RET|unix.BPF_K, 0, 0, 0x00050000|uint32(unix.EPERM)),
		ins(unix.BPF_RET|unix.BPF_K, 0, 0, 0x7fff0000),
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, 1 /* SECCOMP_SET_MODE_FILTER */, 1 /* TSYNC */, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return syscall.Exec(args[0], args, os.Environ())
}

// Without io_uring `auto` says why and runs on epoll; `io_uring` says why and
// does not run.
func TestRingRefused(t *testing.T) {
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(engine string) *exec.Cmd {
		args := []string{path, "broker", "--override", "log.dirs=" + t.TempDir(), "--override", "listeners=PLAINTEXT://" + freeAddr(t),
			"--override", "lockstep.admin.listener=", "--override", "lockstep.io.engine=" + engine}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_FORBID_RING="+strings.Join(args, "\n"))
		return cmd
	}
	out, err := run("io_uring").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "seccomp") {
		t.Errorf("engine=io_uring: %v, must fail and name seccomp: %s", err, out)
	}
	cmd := run("auto")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "ready on the portable engine", 15*time.Second, func() bool {
		b, _ := os.ReadFile(log.Name())
		return strings.Contains(string(b), "name=portable") && strings.Contains(string(b), "seccomp") && strings.Contains(string(b), "msg=ready")
	})
}

// With room for the probe's ring and not for every reactor's, `auto` starts all
// the same.
func TestTooFewRings(t *testing.T) {
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"prlimit", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("needs root, prlimit and setpriv, to take CAP_IPC_LOCK away and limit locked memory")
		}
	}
	addr := freeAddr(t)
	// Rings made with CAP_IPC_LOCK are not counted, so other brokers of this
	// machine do not disturb the count.
	cmd := exec.Command("prlimit", "--memlock=1048576", "setpriv", "--bounding-set=-ipc_lock", path, "broker", "--override", "log.dirs="+t.TempDir(),
		"--override", "listeners=PLAINTEXT://"+addr, "--override", "lockstep.admin.listener=", "--override", "lockstep.io.reactors=16")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "ready", 15*time.Second, func() bool {
		b, _ := os.ReadFile(log.Name())
		return strings.Contains(string(b), "not every reactor can have a ring") && strings.Contains(string(b), "msg=ready")
	})
	cl := newClient(t, addr, kgo.AllowAutoTopicCreation())
	if err := cl.ProduceSync(ctxFor(t, 10*time.Second), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Error(err)
	}
}

// What goes wrong at start is said in one line that tells what to do.
func TestStartRefusals(t *testing.T) {
	n := startNode(t)
	path, err := brokerBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a second broker on one data directory": {[]string{"--override", "log.dirs=" + n.dir, "--override", "listeners=PLAINTEXT://" + freeAddr(t)}, "in use"},
		"a used port":                           {[]string{"--override", "log.dirs=" + t.TempDir(), "--override", "listeners=PLAINTEXT://" + n.addr, "--override", "lockstep.admin.listener="}, "in use"},
		"an unknown setting":                    {[]string{"--override", "log.retention.hour=1"}, "log.retention.hours"},
		"an impossible value":                   {[]string{"--override", "num.partitions=zero"}, "num.partitions"},
		"a file that is not there":              {[]string{"/nonexistent/server.properties"}, "no such file"},
		"a wrong flag":                          {[]string{"--overide", "a=b"}, "unknown flag"},
		"another cluster's log.dirs":            {[]string{"--override", "log.dirs=" + n.dir, "--override", "node.id=7"}, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(path, append([]string{"broker"}, c.args...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, must fail and say %q: %s", err, c.want, out)
			}
			if strings.Contains(string(out), "goroutine ") || strings.Contains(string(out), "panic") {
				t.Errorf("a stack in place of words: %s", out)
			}
		})
	}
}

// A full disk refuses and recovers: nothing acknowledged is lost, reads go on,
// the broker starts on the full disk, and writes go on when there is room.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 24<<20)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, "log.dirs="+dir, "log.segment.bytes=1048576")
	ctx := ctxFor(t, 2*time.Minute)
	cl := newClient(t, n.addr, kgo.AllowAutoTopicCreation())
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("first")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c, err := dialRaw(n.addr)
	if err != nil {
		t.Fatal(err)
	}
	acked := 1
	value := []byte(strings.Repeat("x", 100<<10))
	full := false
	for range 400 {
		r, err := c.produce(9, "orders", [16]byte{}, 0, 5*time.Second, value)
		if err != nil {
			t.Fatalf("the connection ended in place of an answer: %v", err)
		}
		if r.code != wire.ErrNone {
			full = true
			if r.code != wire.ErrKafkaStorageError {
				t.Fatalf("a full disk answered %v %s", r.code, r.message)
			}
			break
		}
		acked++
	}
	if !full {
		t.Fatal("the disk did not fill")
	}
	count := func() int { return len(everything(ctx, t, n.addr, "orders")) }
	if got := count(); got != acked {
		t.Fatalf("%d records readable on the full disk, %d acknowledged", got, acked)
	}
	n.crash()
	n.start() // it must start on a full disk
	if got := count(); got != acked {
		t.Fatalf("%d records after a restart on the full disk, %d acknowledged", got, acked)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c, err = dialRaw(n.addr)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes go on when there is room", 10*time.Second, func() bool {
		r, err := c.produce(9, "orders", [16]byte{}, 0, 5*time.Second, value)
		return err == nil && r.code == wire.ErrNone
	})
	if got := count(); got != acked+1 {
		t.Fatalf("%d records at the end, want %d", got, acked+1)
	}
}

// smallDisk mounts a file as a small ext4.
func smallDisk(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a loop device needs root")
	}
	base := t.TempDir()
	img, dir := filepath.Join(base, "disk.img"), filepath.Join(base, "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(img)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", img}, {"mount", "-o", "loop", img, dir}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s is not possible here: %v: %s", fmt.Sprint(cmd), err, out)
		}
	}
	t.Cleanup(func() {
		for range 50 { // the killed broker's ring may hold a file for a moment
			if exec.Command("umount", dir).Run() == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = exec.Command("umount", "-l", dir).Run()
	})
	return dir
}
