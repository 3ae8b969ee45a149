package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// suite is a set of tests that needs something of the kernel. lacks says what
// this machine does not have, nil when it has all.
type suite struct {
	name, needs string
	lacks       func() error
	command     string // for sh
}

var all = []suite{
	{"ring", "io_uring, Linux 6.1 or later", noRing, "go test -count=1 ./ioring ./dataplane"},
	{"no-ring", "seccomp", nil, "go test -count=1 ./cmd/lockstep -run TestRingRefused"},
	{"portable", "epoll", nil, "go test -count=1 ./cmd/lockstep -run TestE2E/portable"},
	{"full-disk", "root, loop mounts, mkfs.ext4", volumes("ext4"), "go test -count=1 ./segment -run TestFullDisk -full.disk"},
	{"power-cut-ext4", "root, loop mounts, mkfs.ext4, FS_IOC_SHUTDOWN", volumes("ext4"), "go test -count=1 ./segment -run TestCrashPowerCut/power-cut_ext4 -crash.cuts=60"},
	{"power-cut-xfs", "root, loop mounts, mkfs.xfs, XFS_IOC_GOINGDOWN", volumes("xfs"), "go test -count=1 ./segment -run TestCrashPowerCut/power-cut_xfs -crash.cuts=60"},
	{"kill", "nothing", nil, "go test -count=1 ./cmd/lockstep -run TestCrashKills -crash.kills=40"},
	{"netem", "root, network namespaces, sch_netem, tc", noNetem, inNamespace("go test -count=1 ./cmd/lockstep -run TestDemoLosesNothing")},
}

func noRing() error {
	if b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil && strings.TrimSpace(string(b)) != "0" {
		return errors.New("kernel.io_uring_disabled is " + strings.TrimSpace(string(b)))
	}
	return nil
}

// volumes tells whether a file system can be made and mounted here.
func volumes(kind string) func() error {
	return func() error {
		if os.Geteuid() != 0 {
			return errors.New("not root")
		}
		if _, err := exec.LookPath("mkfs." + kind); err != nil {
			return fmt.Errorf("mkfs.%s is not installed", kind)
		}
		return sh("losetup -f")
	}
}

func inNamespace(command string) string {
	return "unshare -n sh -c \"ip link set lo up && tc qdisc add dev lo root netem delay 5ms 1ms && " + command + "\""
}

func noNetem() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	return sh(inNamespace("true"))
}

func sh(command string) error {
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// suites runs what can be run here and says of each suite what became of it.
func suites(args []string) error {
	f := flag.NewFlagSet("suites", flag.ExitOnError)
	only := f.String("only", "", "only the suites whose name has this in it")
	_ = f.Parse(args)
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Printf("Linux %s", release)
	var failed []string
	for _, s := range all {
		if !strings.Contains(s.name, *only) {
			continue
		}
		if s.lacks != nil {
			if err := s.lacks(); err != nil {
				fmt.Printf("%-16s skipped  needs %s: %v\n", s.name, s.needs, err)
				continue
			}
		}
		began := time.Now()
		out, err := exec.Command("sh", "-c", s.command).CombinedOutput()
		took := time.Since(began).Seconds()
		if err != nil {
			failed = append(failed, s.name)
			fmt.Printf("%-16s FAILED   %.0f s: %s\n%s\n", s.name, took, s.command, out)
			continue
		}
		fmt.Printf("%-16s ran      %.0f s: %s\n", s.name, took, s.command)
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}
