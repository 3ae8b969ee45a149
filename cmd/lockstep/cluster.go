package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"lockstep/admin"
	"lockstep/internal/cli"
	"lockstep/internal/wire"
	"lockstep/plugins/host"
)

func clusterCommand(o *cli.Options) *cobra.Command {
	return group("cluster", "Look at the cluster as a whole", "  lockstep cluster health", clusterStatus(o), clusterHealth(o))
}

// clusterState is what status and health are about.
type clusterState struct {
	ClusterID     string        `json:"clusterId"`
	Controller    int32         `json:"controller"` // -1 = none
	Brokers       []brokerState `json:"brokers"`
	MirrorSync    int16         `json:"mirrorSyncVersion"`
	Engine        string        `json:"engine"` // of the broker behind --admin-listener, empty = unknown
	Topics        int           `json:"topics"`
	Partitions    int           `json:"partitions"`
	Leaderless    []string      `json:"leaderless"`
	Offline       []string      `json:"offlineReplicas"`
	UnderMinISR   []string      `json:"underMinIsr"`
	UnderReplica  []string      `json:"underReplicated"`
	FailedMirrors []string      `json:"failedMirrorPartitions"`
	NotInSync     []string      `json:"notInSync"`     // SYNC is desired and does not hold
	FailedDirs    []string      `json:"failedLogDirs"` // broker:directory
	Unknown       []string      `json:"unknown"`       // questions that were not answered
	PluginsOf     string        `json:"pluginsOf"`     // admin listener that was asked, empty = none was
	PluginsDown   []string      `json:"pluginsNotServing"`
	Healthy       bool          `json:"healthy"`
	Reasons       []string      `json:"reasons"` // why not

	mirrors bool // some broker knows of mirrors
}

type brokerState struct {
	ID      int32  `json:"id"`
	Host    string `json:"host"`
	Port    int32  `json:"port"`
	Rack    string `json:"rack"`
	Answers bool   `json:"answers"`
	Error   string `json:"error,omitempty"`
	Fetch   int16  `json:"fetchMaxVersion"`
	Produce int16  `json:"produceMaxVersion"`
}

// adminAt is the admin listener of a command on a cluster.
type adminAt struct {
	addr  string
	given bool
	ours  bool // it is of the cluster that is asked about
}

// bind adds the flag. Without it, 127.0.0.1 belongs to the cluster only if that
// too is the one at its default address.
func (a *adminAt) bind(cmd *cobra.Command) {
	adminFlag(cmd, &a.addr)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		changed := cmd.Flags().Changed
		a.given = changed("admin-listener")
		a.ours = a.given || !changed("bootstrap-server") && !changed("command-config")
		return checkAdmin(a.addr)
	}
}

// look asks the cluster for everything.
func look(ctx context.Context, s *cli.Session, a *adminAt) (*clusterState, error) {
	ctx, cancel := s.Within(ctx)
	defer cancel()
	meta, err := s.Admin.Metadata(ctx)
	if err != nil {
		return nil, s.Lost("asking for the cluster's state", err)
	}
	c := &clusterState{ClusterID: meta.Cluster, Controller: meta.Controller, Engine: engineName(ctx, a.addr), Topics: len(meta.Topics)}
	if err := c.brokers(ctx, s, meta); err != nil {
		return nil, err
	}
	if err := c.partitions(ctx, s, meta.Topics); err != nil {
		return nil, err
	}
	if c.mirrors {
		c.lookAtMirrors(ctx, s)
	}
	c.lookAtDirs(ctx, s)
	if a.ours {
		c.lookAtPlugins(ctx, a)
	}
	c.judge()
	return c, nil
}

func (c *clusterState) lookAtMirrors(ctx context.Context, s *cli.Session) {
	d, err := s.Mirrors.DescribeMirrors(ctx)
	if err != nil {
		c.Unknown = append(c.Unknown, "mirrors: "+err.Error())
		return
	}
	c.judgeMirrors(d.Mirrors)
}

func (c *clusterState) judgeMirrors(mirrors []admin.DescribedMirror) {
	for _, m := range mirrors {
		for _, t := range m.Topics {
			if t.Desired == admin.Sync && t.Effective != admin.Sync {
				c.NotInSync = append(c.NotInSync, m.Name+"/"+t.Topic)
			}
			for _, p := range t.Partitions {
				if p.State == "FAILED" {
					c.FailedMirrors = append(c.FailedMirrors, fmt.Sprintf("%s/%s-%d", m.Name, t.Topic, p.Partition))
				}
			}
		}
	}
}

// lookAtDirs asks every broker for its log directories, and for no partition in
// them: there may be a hundred thousand.
func (c *clusterState) lookAtDirs(ctx context.Context, s *cli.Session) {
	const noTopic = "-"
	for _, b := range c.Brokers {
		if !b.Answers {
			continue
		}
		dirs, err := s.Admin.DescribeBrokerLogDirs(ctx, b.ID, kadm.TopicsSet{noTopic: nil})
		if err != nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("log directories of broker %d: %v", b.ID, err))
		}
		for _, d := range dirs.Sorted() {
			if d.Err != nil {
				c.FailedDirs = append(c.FailedDirs, fmt.Sprintf("%d:%s", b.ID, d.Dir))
			}
		}
	}
}

// lookAtPlugins asks one broker: each has its own, and the admin listener is not
// for other machines.
func (c *clusterState) lookAtPlugins(ctx context.Context, a *adminAt) {
	var list []pluginView
	if err := fetchJSON(ctx, a.addr, "/plugins", &list); err != nil {
		if a.given {
			c.Unknown = append(c.Unknown, "plugins: "+err.Error())
		}
		return
	}
	c.PluginsOf = a.addr
	for _, v := range list {
		if v.Phase != host.Up.String() {
			c.PluginsDown = append(c.PluginsDown, string(v.Kind)+" "+v.Phase)
		}
	}
}

func (c *clusterState) brokers(ctx context.Context, s *cli.Session, meta kadm.Metadata) error {
	answers, err := s.Admin.ApiVersions(ctx)
	if err != nil {
		return s.Lost("asking the brokers", err)
	}
	for _, b := range meta.Brokers {
		x := brokerState{ID: b.NodeID, Host: b.Host, Port: b.Port, Error: "it did not answer"}
		if b.Rack != nil {
			x.Rack = *b.Rack
		}
		if a, ok := answers[b.NodeID]; ok {
			x.Answers, x.Error = a.Err == nil, ""
			if a.Err != nil {
				x.Error = a.Err.Error()
			} else {
				_, x.Fetch, _ = a.KeyVersions(wire.KeyFetch)
				_, x.Produce, _ = a.KeyVersions(wire.KeyProduce)
				_, _, knows := a.KeyVersions(wire.KeyDescribeClusterMirrors)
				c.mirrors = c.mirrors || knows
				for _, f := range a.Raw().FinalizedFeatures {
					if f.Name == "mirror.sync.version" {
						c.MirrorSync = f.MaxVersionLevel
					}
				}
			}
		}
		c.Brokers = append(c.Brokers, x)
	}
	return nil
}

func (c *clusterState) partitions(ctx context.Context, s *cli.Session, topics kadm.TopicDetails) error {
	if len(topics) == 0 {
		return nil
	}
	configs, err := s.Admin.DescribeTopicConfigs(ctx, topics.Names()...)
	if err != nil {
		return s.Lost("asking for the topics' settings", err)
	}
	minISR := map[string]int{}
	for _, r := range configs {
		for _, k := range r.Configs {
			if k.Key == "min.insync.replicas" {
				minISR[r.Name], _ = strconv.Atoi(k.MaybeValue()) // validated by the broker
			}
		}
	}
	for _, t := range topics.Sorted() {
		c.Partitions += len(t.Partitions)
		for _, p := range t.Partitions.Sorted() {
			name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			if p.Leader < 0 {
				c.Leaderless = append(c.Leaderless, name)
			}
			if len(p.OfflineReplicas) > 0 {
				c.Offline = append(c.Offline, name)
			}
			if len(p.ISR) < minISR[t.Topic] {
				c.UnderMinISR = append(c.UnderMinISR, name)
			}
			if len(p.ISR) < len(p.Replicas) {
				c.UnderReplica = append(c.UnderReplica, name)
			}
		}
	}
	return nil
}

// judge fills Healthy and Reasons. A partition with fewer replicas in sync
// than it has is shown, and is no reason as long as its minimum is met.
func (c *clusterState) judge() {
	if c.Controller < 0 {
		c.Reasons = append(c.Reasons, "no controller")
	}
	for _, b := range c.Brokers {
		if !b.Answers {
			c.Reasons = append(c.Reasons, fmt.Sprintf("broker %d does not answer: %s", b.ID, b.Error))
		}
	}
	for _, x := range []struct {
		what string
		list []string
	}{{"partitions without a leader", c.Leaderless}, {"partitions with offline replicas", c.Offline},
		{"partitions under min.insync.replicas", c.UnderMinISR}, {"failed log directories", c.FailedDirs},
		{"mirror partitions FAILED", c.FailedMirrors}, {"topics to be in SYNC are ASYNC", c.NotInSync}, {"plugins not serving at " + c.PluginsOf, c.PluginsDown},
		{"questions not answered", c.Unknown}} {
		if len(x.list) > 0 {
			c.Reasons = append(c.Reasons, fmt.Sprintf("%d %s: %s", len(x.list), x.what, short(x.list)))
		}
	}
	c.Healthy = len(c.Reasons) == 0
	for _, list := range []*[]string{&c.Leaderless, &c.Offline, &c.UnderMinISR, &c.UnderReplica, &c.FailedMirrors, &c.NotInSync, &c.FailedDirs, &c.PluginsDown, &c.Unknown, &c.Reasons} {
		if *list == nil {
			*list = []string{}
		}
	}
}

// short names the first few of a list.
func short(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(slices.Clone(list[:most]), ", ") + ", ..."
}

// engineName asks one broker's admin listener; empty if it does not answer.
func engineName(ctx context.Context, addr string) string {
	body, err := askAdmin(ctx, addr, "/metrics")
	if err != nil {
		return ""
	}
	defer body.Close()
	page, err := io.ReadAll(body)
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(page), `lockstep_info{engine="`)
	name, _, _ := strings.Cut(rest, `"`)
	if !ok {
		return ""
	}
	return name
}

func clusterStatus(o *cli.Options) *cobra.Command {
	var a adminAt
	cmd := &cobra.Command{Use: "status", Short: "Show brokers, controller, features, and what is not as it should be", Args: cobra.NoArgs,
		Example: "  lockstep cluster status --json",
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, _ []string) error {
			c, err := look(ctx, s, &a)
			switch {
			case err != nil:
				return err
			case p.JSON:
				return p.Document(c)
			}
			p.Line("CLUSTER %s  CONTROLLER %s  ENGINE %s  mirror.sync.version %d  TOPICS %d  PARTITIONS %d", c.ClusterID, offset(int64(c.Controller)),
				orDash(c.Engine), c.MirrorSync, c.Topics, c.Partitions)
			var rows [][]string
			for _, b := range c.Brokers {
				state := "answers"
				if !b.Answers {
					state = b.Error
				}
				rows = append(rows, []string{num(b.ID), fmt.Sprintf("%s:%d", b.Host, b.Port), orDash(b.Rack), num(int32(b.Produce)), num(int32(b.Fetch)), state})
			}
			p.Table(cli.Columns("BROKER", "ADDRESS", "RACK", "PRODUCE", "FETCH", "STATE"), rows)
			if len(c.UnderReplica) > 0 {
				p.Line("%d partitions with fewer replicas in sync than they have: %s", len(c.UnderReplica), short(c.UnderReplica))
			}
			for _, r := range c.Reasons {
				p.Line("%s", r)
			}
			return nil
		})}
	a.bind(cmd)
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func clusterHealth(o *cli.Options) *cobra.Command {
	var a adminAt
	cmd := &cobra.Command{Use: "health", Short: "Say whether all is well; exit 10 if not", Args: cobra.NoArgs,
		Long: `Say whether all is well, and if not, what is not. Unhealthy is:

  - no controller, or a broker that does not answer
  - a partition without a leader, with a replica offline, or under its min.insync.replicas
  - a log directory that has failed
  - a mirrored partition that is FAILED
  - a mirrored topic that is to be SYNC and is ASYNC in effect (one that is catching up too)
  - a plugin that does not serve, of the broker behind --admin-listener
  - a question to the cluster that is not answered within --timeout

Replicas that are behind while the minimum is met are no reason; cluster status shows them.
Plugins are looked at if --admin-listener is given, or neither --bootstrap-server nor
--command-config; that nobody answers at the default address is said, and no reason.`,
		Example: "  lockstep cluster health || echo 'look into it'\n  lockstep cluster health --json --timeout 5s | jq -r '.reasons[]'",
	}
	a.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := o.Connect(cmd.Context())
		var c *clusterState
		if err == nil {
			defer s.Close()
			c, err = look(cmd.Context(), s, &a)
		}
		if err != nil {
			return unhealthy(err)
		}
		p := printer(cmd, o)
		if p.JSON {
			if err := p.Document(c); err != nil {
				return err
			}
		}
		if !c.Healthy {
			return &cli.Error{What: "unhealthy", Why: errors.New(strings.Join(c.Reasons, "; ")), Code: cli.ExitUnhealthy, Do: c.next()}
		}
		p.Line("healthy: %d brokers, %d partitions, %s", len(c.Brokers), c.Partitions, c.pluginWords(&a))
		return nil
	}
	return cmd
}

// pluginWords says whether plugins were looked at.
func (c *clusterState) pluginWords(a *adminAt) string {
	switch {
	case c.PluginsOf != "":
		return "plugins serve at " + c.PluginsOf
	case a.ours:
		return "plugins not looked at: nobody answers at " + a.addr
	}
	return "plugins not looked at: no --admin-listener is given"
}

// next names the commands that show more of what is wrong.
func (c *clusterState) next() string {
	see := []string{"lockstep cluster status"}
	if len(c.FailedMirrors) > 0 {
		see = append(see, "lockstep mirrors describe --failed")
	}
	if len(c.NotInSync) > 0 {
		see = append(see, "lockstep mirrors describe")
	}
	if len(c.PluginsDown) > 0 {
		see = append(see, "lockstep plugins list")
	}
	return "see " + strings.Join(see, ", ")
}

// unhealthy turns a failure to ask into the exit code of an unhealthy cluster;
// a wrong call stays one.
func unhealthy(err error) error {
	var e *cli.Error
	if errors.As(err, &e) && e.Code == cli.ExitUsage {
		return err
	}
	return &cli.Error{What: "unhealthy", Why: err, Code: cli.ExitUnhealthy}
}
