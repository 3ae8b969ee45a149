package host

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"lockstep/plugins/sdk"
)

// Spec is a program that serves a kind.
type Spec struct {
	Path   string
	Args   []string
	SHA256 string // of the file, hex
}

// Checksum is the SHA-256 of a file, hex.
func Checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Running is a plugin that was started.
type Running interface {
	Plugin() sdk.Plugin
	Pid() int
	Exited() (why string, over bool)
	Kill()
}

// process is a plugin in a process of its own.
type process struct {
	cmd      *exec.Cmd
	client   *plugin.Client
	policy   sdk.Plugin
	lifeline *os.File // held open; the plugin leaves when it closes
	sockets  string
}

// Launcher starts plugins as processes.
type Launcher struct {
	Kind    sdk.Kind
	Log     io.Writer // what plugins write to standard error
	Sockets string    // SocketDir's; the caller removes it
	Own     string    // path of a program that makes the directory of its socket itself; "" = none does

	started atomic.Int64
}

// SocketDir names a directory for the sockets of plugins: the path of a socket
// has 107 bytes, and go-plugin adds to ours. It removes those of brokers that
// were killed together with their plugins. It makes none: a plugin does, which
// removes it when its broker is gone, so that there is no moment at which a
// killed broker leaves one.
func SocketDir() (string, error) {
	base := os.TempDir()
	if len(base) > socketBaseMax {
		base = "/tmp"
	}
	old, _ := filepath.Glob(filepath.Join(base, sdk.SocketDirPrefix+"*"))
	for _, dir := range old {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), sdk.SocketDirPrefix+"%d-", &pid); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = os.RemoveAll(dir)
		}
	}
	var unguessed [8]byte
	_, _ = rand.Read(unguessed[:]) // never fails: see crypto/rand
	return filepath.Join(base, fmt.Sprintf("%s%d-%x", sdk.SocketDirPrefix, os.Getpid(), unguessed)), nil
}

// Launch starts a program and shakes hands with it. It takes up to 10 s.
func (l *Launcher) Launch(s Spec) (Running, error) {
	sum, err := hex.DecodeString(s.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("%s: %q is not a SHA-256 in hex", s.Path, s.SHA256)
	}
	dir := filepath.Join(l.Sockets, fmt.Sprintf("%.1s%d", l.Kind, l.started.Add(1)))
	if s.Path != l.Own { // built with an SDK that may not make it
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer r.Close()
	cmd := exec.Command(s.Path, s.Args...)
	cmd.ExtraFiles = []*os.File{r} // sdk.LifelineFD
	// One event at a time is asked: one processor is enough for a plugin in Go.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1", plugin.EnvUnixSocketDir + "=" + dir, sdk.LifelineEnv()}
	// Its own group: Ctrl-C at the broker's terminal is the broker's. SIGCONT
	// wakes a plugin that is stopped when the broker dies, so that it sees its
	// lifeline end; to any other it is nothing.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
	p := &process{cmd: cmd, lifeline: w, sockets: dir, client: plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: sdk.Handshake, VersionedPlugins: sdk.Plugins(nil), AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Cmd: cmd, SkipHostEnv: true, AutoMTLS: true, StartTimeout: startTimeout, Stderr: l.Log, Logger: hclog.NewNullLogger(),
		SecureConfig: &plugin.SecureConfig{Checksum: sum, Hash: &paced{Hash: sha256.New(), sleep: time.Sleep}},
	})}
	if err := p.dispense(l.Kind); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s: %s", s.Path, clean(err))
	}
	return p, nil
}

// paced is a hash that rests: the checksum of a program of 40 MB at one stretch
// is 20 ms of a processor that records wait for. It is not done at a lower
// priority: a thread of this process that the kernel keeps waiting keeps a stop of
// the garbage collector waiting, and with it everything.
type paced struct {
	hash.Hash
	sleep func(time.Duration)
	since int // bytes
}

func (p *paced) Write(b []byte) (int, error) {
	if p.since += len(b); p.since >= pacedBytes {
		p.since = 0
		p.sleep(pacedRest)
	}
	return p.Hash.Write(b)
}

func (p *process) dispense(kind sdk.Kind) error {
	c, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := c.Dispense(sdk.Service)
	if err != nil {
		return err
	}
	p.policy = raw.(sdk.Plugin)
	return checkDescription(kind, p.policy.Describe())
}

// checkDescription: a name and a version go into logs and tables as they are.
func checkDescription(kind sdk.Kind, d sdk.Description) error {
	plain := func(s string) bool {
		return s != "" && len(s) <= describeMax && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	}
	switch {
	case d.Kind != kind:
		return fmt.Errorf("it is a %q plugin, not a %q one", d.Kind, kind)
	case !plain(d.Name) || !plain(d.Version):
		return fmt.Errorf("name %.100q and version %.100q must be 1 to %d printable characters", d.Name, d.Version, describeMax)
	}
	return nil
}

// clean makes one line of go-plugin's errors, which explain at length.
func clean(err error) string {
	if errors.Is(err, plugin.ErrChecksumsDoNotMatch) {
		return "the file's SHA-256 is not the one given"
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if said, ok := strings.CutPrefix(text, "Unrecognized remote plugin message: "); ok {
		said, _, _ = strings.Cut(said, " This usually means")
		text = fmt.Sprintf("it is no plugin of this broker, or cannot run here; it said %.60q", said)
	}
	text = strings.Map(func(r rune) rune { // what a plugin said ends on a terminal
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), 300)]
}

func (p *process) Plugin() sdk.Plugin { return p.policy }

func (p *process) Pid() int { return p.cmd.Process.Pid }

// Exited tells whether the process is no more, and how it ended.
func (p *process) Exited() (string, bool) {
	if !p.client.Exited() {
		return "", false
	}
	return p.cmd.ProcessState.String(), true
}

// Kill asks the process to leave and ends it after a grace.
func (p *process) Kill() {
	if p.cmd.Process != nil {
		t := time.AfterFunc(killGrace, func() { _ = p.cmd.Process.Kill() })
		defer t.Stop()
	}
	p.client.Kill()
	_ = p.lifeline.Close()
	_ = os.RemoveAll(p.sockets)
}

// LogFile is a plugin's log: a file that is begun anew, the old one kept beside
// it, when it is full.
type LogFile struct {
	path string

	mu   sync.Mutex // two plugins write during a swap
	f    *os.File
	size int64
}

// OpenLogFile opens a log for appending.
func OpenLogFile(path string) (*LogFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &LogFile{path: path, f: f, size: info.Size()}, nil
}

// Write never fails: a log that cannot be written must not stop a plugin.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(b)) > logFileMax {
		if os.Rename(l.path, l.path+".1") == nil {
			if f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
				_ = l.f.Close()
				l.f, l.size = f, 0
			}
		}
	}
	n, _ := l.f.Write(b)
	l.size += int64(n)
	return len(b), nil
}
