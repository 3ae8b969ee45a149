package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lockstep/internal/cli"
)

// version is the release this tree becomes.
const version = "0.1.0"

type versionFacts struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Kernel  string `json:"kernel"`
	Arch    string `json:"arch"`
}

func versionCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print version, commit, Go and kernel", Args: cobra.NoArgs,
		Example: "  lockstep version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionFacts{version, buildCommit(), runtime.Version(), kernel(), runtime.GOARCH}
			p := printer(cmd, o)
			if p.JSON {
				return p.Document(v)
			}
			p.Line("lockstep %s  commit %s  %s  Linux %s  %s", v.Version, v.Commit, v.Go, v.Kernel, v.Arch)
			return nil
		}}
}

// buildCommit is the commit the binary was built from.
func buildCommit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return rev + dirty
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
