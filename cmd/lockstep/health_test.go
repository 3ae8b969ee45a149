package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/admin"
	"lockstep/internal/cli"
)

// TestJudge: each thing that is unhealthy is a reason of its own, and names
// where to look.
func TestJudge(t *testing.T) {
	mirror := func(topic string, desired, effective admin.MirrorType, state string) []admin.DescribedMirror {
		return []admin.DescribedMirror{{Name: "dr", Topics: []admin.DescribedTopic{{Topic: topic, Desired: desired, Effective: effective,
			Partitions: []admin.DescribedPartition{{Partition: 3, State: state}}}}}}
	}
	for _, c := range []struct {
		name       string
		spoil      func(c *clusterState)
		want, next string // reason, and the last command to look at
	}{
		{"nothing", func(*clusterState) {}, "", ""},
		{"no controller", func(c *clusterState) { c.Controller = -1 }, "no controller", "lockstep cluster status"},
		{"a silent broker", func(c *clusterState) { c.Brokers = append(c.Brokers, brokerState{ID: 7, Error: "refused"}) }, "broker 7 does not answer: refused", "lockstep cluster status"},
		{"no leader", func(c *clusterState) { c.Leaderless = []string{"a-0"} }, "1 partitions without a leader: a-0", "lockstep cluster status"},
		{"offline", func(c *clusterState) { c.Offline = []string{"a-0"} }, "1 partitions with offline replicas: a-0", "lockstep cluster status"},
		{"under min ISR", func(c *clusterState) { c.UnderMinISR = []string{"a-0", "a-1"} }, "2 partitions under min.insync.replicas: a-0, a-1", "lockstep cluster status"},
		{"only behind", func(c *clusterState) { c.UnderReplica = []string{"a-0"} }, "", ""},
		{"a failed directory", func(c *clusterState) { c.FailedDirs = []string{"1:/data"} }, "1 failed log directories: 1:/data", "lockstep cluster status"},
		{"a failed mirror", func(c *clusterState) { c.judgeMirrors(mirror("a", admin.Async, admin.Async, "FAILED")) }, "1 mirror partitions FAILED: dr/a-3", "lockstep mirrors describe --failed"},
		{"not in SYNC", func(c *clusterState) { c.judgeMirrors(mirror("a", admin.Sync, admin.Async, "MIRRORING")) }, "1 topics to be in SYNC are ASYNC: dr/a", "lockstep mirrors describe"},
		{"in SYNC", func(c *clusterState) { c.judgeMirrors(mirror("a", admin.Sync, admin.Sync, "MIRRORING")) }, "", ""},
		{"ASYNC by wish", func(c *clusterState) { c.judgeMirrors(mirror("a", admin.Async, admin.Async, "STOPPED")) }, "", ""},
		{"a plugin", func(c *clusterState) { c.PluginsOf, c.PluginsDown = "h:1", []string{"release BACKING_OFF"} }, "1 plugins not serving at h:1: release BACKING_OFF", "lockstep plugins list"},
		{"no answer", func(c *clusterState) { c.Unknown = []string{"mirrors: no answer"} }, "1 questions not answered: mirrors: no answer", "lockstep cluster status"},
	} {
		s := &clusterState{Brokers: []brokerState{{ID: 1, Answers: true}}}
		c.spoil(s)
		s.judge()
		if got := strings.Join(s.Reasons, "|"); got != c.want || s.Healthy != (c.want == "") {
			t.Errorf("%s: healthy %v, %q, want %q", c.name, s.Healthy, got, c.want)
		}
		if !s.Healthy && !strings.HasSuffix(s.next(), c.next) {
			t.Errorf("%s: %q", c.name, s.next())
		}
	}
}

// TestHealthAsks: log directories are asked of every broker of a cluster that
// knows nothing of mirrors, and plugins of an admin listener.
func TestHealthAsks(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	phase := "SERVING"
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/plugins" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `[{"kind":"promotion","phase":%q}]`, phase)
	}))
	defer page.Close()
	at := strings.TrimPrefix(page.URL, "http://")
	health := func(args ...string) (int, string, string) {
		return lockstep(append([]string{"cluster", "health", "--timeout", "5s", "--bootstrap-server", strings.Join(k.ListenAddrs(), ",")}, args...)...)
	}
	if code, out, errs := health(); code != 0 || out != "healthy: 2 brokers, 3 partitions, plugins not looked at: no --admin-listener is given\n" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := health("--admin-listener", at); code != 0 || out != "healthy: 2 brokers, 3 partitions, plugins serve at "+at+"\n" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	phase = "BACKING_OFF"
	if code, _, errs := health("--admin-listener", at); code != cli.ExitUnhealthy || !strings.Contains(errs, "1 plugins not serving at "+at+": promotion BACKING_OFF; see lockstep cluster status, lockstep plugins list") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := health("--admin-listener", "127.0.0.1:1"); code != cli.ExitUnhealthy || !strings.Contains(errs, "questions not answered: plugins: asking the admin listener at 127.0.0.1:1") {
		t.Errorf("exit %d, %s", code, errs)
	}
	asked := 0
	k.ControlKey(35, func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		asked++
		resp := r.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir = fmt.Sprintf("/data%d", asked)
		if asked == 2 {
			dir.ErrorCode = 56
		}
		resp.Dirs = append(resp.Dirs, dir)
		return resp, nil, true
	})
	if code, _, errs := health(); code != cli.ExitUnhealthy || !strings.Contains(errs, "unhealthy: 1 failed log directories: 1:/data2; see lockstep cluster status") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
