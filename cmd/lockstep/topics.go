package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/admin"
	"lockstep/internal/cli"
)

func topicsCommand(o *cli.Options) *cobra.Command {
	return group("topics", "Create, list, describe, alter and delete topics", "  lockstep topics create orders --partitions 6",
		topicsList(o), topicsCreate(o), topicsDelete(o), topicsDescribe(o), topicsAlter(o))
}

func topicsList(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List topics", Args: cobra.NoArgs,
		Example: "  lockstep topics list --json",
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, _ []string) error {
			details, err := topicDetails(ctx, s)
			if err != nil {
				return err
			}
			type topic struct {
				Name              string `json:"name"`
				ID                string `json:"id"`
				Partitions        int    `json:"partitions"`
				ReplicationFactor int    `json:"replicationFactor"`
			}
			list, rows := []topic{}, [][]string(nil)
			for _, d := range details.Sorted() {
				t := topic{d.Topic, topicID(d.ID), len(d.Partitions), d.Partitions.NumReplicas()}
				list = append(list, t)
				rows = append(rows, []string{t.Name, strconv.Itoa(t.Partitions), strconv.Itoa(t.ReplicationFactor), t.ID})
			}
			switch {
			case p.JSON:
				return p.Document(list)
			case len(list) == 0:
				p.Line("No topics found")
			default:
				p.Table(cli.Columns("TOPIC", "PARTITIONS", "REPLICATION", "ID"), rows)
			}
			return nil
		})}
}

// topicDetails asks for the named topics, or for all.
func topicDetails(ctx context.Context, s *cli.Session, names ...string) (kadm.TopicDetails, error) {
	ctx, cancel := s.Within(ctx)
	defer cancel()
	details, err := s.Admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, s.Lost("listing topics", err)
	}
	for _, n := range names {
		d, ok := details[n]
		if !ok {
			d.Err = errors.New("the broker did not answer for it")
		}
		if d.Err != nil {
			return nil, cli.Fail("topic "+n, d.Err, "lockstep topics list shows what there is")
		}
	}
	return details, nil
}

func topicsCreate(o *cli.Options) *cobra.Command {
	var partitions int32
	var replication int16
	var configs []string
	var set map[string]*string
	cmd := &cobra.Command{Use: "create NAME...", Short: "Create topics", Args: cobra.MinimumNArgs(1),
		Long:    "Create topics. Without --partitions and --replication-factor the broker's defaults hold.",
		Example: "  lockstep topics create orders --partitions 6 --replication-factor 3 --config min.insync.replicas=2",
		PreRunE: func(*cobra.Command, []string) (err error) {
			set, err = pairs(configs)
			return err
		},
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error {
			ctx, cancel := s.Within(ctx)
			defer cancel()
			got, err := s.Admin.CreateTopics(ctx, partitions, replication, set, args...)
			if err != nil {
				return s.Lost("creating topics", err)
			}
			return each(p, args, "created", func(n string) error {
				r, ok := got[n]
				return answered("creating topic "+n, r.Err, r.ErrMessage, ok)
			})
		})}
	f := cmd.Flags()
	f.Int32Var(&partitions, "partitions", -1, "number of partitions, -1 = the broker's default")
	f.Int16Var(&replication, "replication-factor", -1, "replicas of each partition, -1 = the broker's default")
	f.StringArrayVar(&configs, "config", nil, "a setting, `NAME=VALUE`; may be given again")
	return cmd
}

// pairs reads NAME=VALUE arguments.
func pairs(list []string) (map[string]*string, error) {
	m := map[string]*string{}
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, cli.Usage("--config %q is not NAME=VALUE, such as retention.ms=86400000", s)
		}
		m[name] = &value
	}
	return m, nil
}

// answered is the outcome for one name.
func answered(what string, err error, message string, found bool) error {
	switch {
	case !found:
		return cli.Fail(what, errors.New("the broker did not answer for it"), "ask again")
	case err == nil:
		return nil
	case message != "":
		return cli.Fail(what, errors.New(message), "") // our brokers' words end in what to do
	}
	return cli.Fail(what, err, nextStep(err))
}

// nextStep is for an error of which the broker gave the code alone.
func nextStep(err error) string {
	var code *kerr.Error
	if !errors.As(err, &code) {
		return ""
	}
	return admin.NextStep(code.Code)
}

// each reports the outcome of every name: what was done on Out, errors on Err,
// and fails if any failed. The error of a single name is that of the command.
func each(p *cli.Printer, names []string, done string, outcome func(name string) error) error {
	type result struct {
		Name  string `json:"name"`
		Error string `json:"error,omitempty"`
	}
	list := []result{}
	failed, last := 0, error(nil)
	for _, n := range names {
		r := result{Name: n}
		if err := outcome(n); err != nil {
			failed, last = failed+1, err
			r.Error = err.Error()
			if len(names) > 1 {
				p.Note("%v", err)
			}
		} else {
			p.Line("%s %s", done, n)
		}
		list = append(list, r)
	}
	if p.JSON {
		if err := p.Document(list); err != nil {
			return err
		}
	}
	if failed > 0 && len(names) > 1 {
		return cli.Fail(fmt.Sprintf("%d of %d topics", failed, len(names)), errors.New("refused"), "see above why, and what to do about it")
	}
	return last
}

func topicsDelete(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "delete NAME...", Short: "Delete topics and their records", Args: cobra.MinimumNArgs(1),
		Example: "  lockstep topics delete orders",
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error {
			ctx, cancel := s.Within(ctx)
			defer cancel()
			got, err := s.Admin.DeleteTopics(ctx, args...)
			if err != nil {
				return s.Lost("deleting topics", err)
			}
			return each(p, args, "deleted", func(n string) error {
				r, ok := got[n]
				return answered("deleting topic "+n, r.Err, r.ErrMessage, ok)
			})
		})}
}

type topicDescription struct {
	Name       string                 `json:"name"`
	ID         string                 `json:"id"`
	Configs    map[string]string      `json:"configs"` // those that are set on the topic
	Partitions []partitionDescription `json:"partitions"`
}

type partitionDescription struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1 = none
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline"`
	StartOffset int64   `json:"startOffset"` // -1 = unknown
	EndOffset   int64   `json:"endOffset"`
}

func topicsDescribe(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "describe [NAME...]", Short: "Show partitions, replicas, offsets and settings",
		Example: "  lockstep topics describe orders",
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error {
			list, err := describeTopics(ctx, s, args)
			switch {
			case err != nil:
				return err
			case p.JSON:
				return p.Document(list)
			case len(list) == 0:
				p.Line("No topics found")
			}
			for i, t := range list {
				if i > 0 {
					p.Line("")
				}
				p.Line("TOPIC %s  ID %s  CONFIGS %s", t.Name, t.ID, configText(t.Configs))
				var rows [][]string
				for _, x := range t.Partitions {
					rows = append(rows, []string{num(x.Partition), num(x.Leader), num(x.LeaderEpoch), nums(x.Replicas), nums(x.ISR), nums(x.Offline), offset(x.StartOffset), offset(x.EndOffset)})
				}
				p.Table(cli.Columns("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE", "START", "END"), rows)
			}
			return nil
		})}
}

func describeTopics(ctx context.Context, s *cli.Session, names []string) ([]topicDescription, error) {
	details, err := topicDetails(ctx, s, names...)
	if err != nil || len(details) == 0 {
		return []topicDescription{}, err
	}
	ctx, cancel := s.Within(ctx)
	defer cancel()
	configs, err := s.Admin.DescribeTopicConfigs(ctx, details.Names()...)
	if err != nil {
		return nil, s.Lost("describing topics", err)
	}
	// A partition without a leader has no offsets; it is shown all the same.
	starts, _ := s.Admin.ListStartOffsets(ctx, details.Names()...)
	ends, _ := s.Admin.ListEndOffsets(ctx, details.Names()...)
	at := func(l kadm.ListedOffsets, topic string, p int32) int64 {
		if o, ok := l.Lookup(topic, p); ok && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	list := []topicDescription{}
	for _, d := range details.Sorted() {
		t := topicDescription{Name: d.Topic, ID: topicID(d.ID), Configs: map[string]string{}}
		for _, r := range configs {
			for _, c := range r.Configs {
				if r.Name == d.Topic && c.Source == kmsg.ConfigSourceDynamicTopicConfig {
					t.Configs[c.Key] = c.MaybeValue()
				}
			}
		}
		for _, x := range d.Partitions.Sorted() {
			t.Partitions = append(t.Partitions, partitionDescription{x.Partition, x.Leader, x.LeaderEpoch, some(x.Replicas), some(x.ISR), some(x.OfflineReplicas),
				at(starts, d.Topic, x.Partition), at(ends, d.Topic, x.Partition)})
		}
		list = append(list, t)
	}
	return list, nil
}

// topicID writes an id as Kafka's tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// some makes null an empty list.
func some(list []int32) []int32 { return append([]int32{}, list...) }

func num(n int32) string { return strconv.Itoa(int(n)) }

func nums(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = num(n)
	}
	return strings.Join(text, ",")
}

func offset(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func configText(m map[string]string) string {
	if len(m) == 0 {
		return "-"
	}
	var list []string
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return strings.Join(list, ",")
}

func topicsAlter(o *cli.Options) *cobra.Command {
	var partitions int
	var configs, removed []string
	var set map[string]*string
	cmd := &cobra.Command{Use: "alter NAME...", Short: "Add partitions, set or remove settings", Args: cobra.MinimumNArgs(1),
		Example: "  lockstep topics alter orders --partitions 12 --config retention.ms=86400000 --delete-config flush.ack",
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			if set, err = pairs(configs); err != nil {
				return err
			}
			if partitions == 0 && len(set)+len(removed) == 0 {
				return cli.Usage("%s: nothing to alter: give --partitions, --config or --delete-config", called(cmd))
			}
			return nil
		},
		RunE: talk(o, func(ctx context.Context, s *cli.Session, p *cli.Printer, args []string) error {
			grown, err := growTopics(ctx, s, partitions, args)
			if err != nil {
				return err
			}
			altered, err := alterConfigs(ctx, s, set, removed, args)
			if err != nil {
				return err
			}
			return each(p, args, "altered", func(name string) error {
				if err := grown(name); err != nil {
					return err
				}
				return altered(name)
			})
		})}
	f := cmd.Flags()
	f.IntVar(&partitions, "partitions", 0, "new number of partitions, more than now")
	f.StringArrayVar(&configs, "config", nil, "a setting, `NAME=VALUE`; may be given again")
	f.StringArrayVar(&removed, "delete-config", nil, "a setting to take back to its default, `NAME`; may be given again")
	return cmd
}

// outcomes tells what became of each name.
type outcomes func(name string) error

func nothingDone(string) error { return nil }

func growTopics(ctx context.Context, s *cli.Session, n int, names []string) (outcomes, error) {
	if n == 0 {
		return nothingDone, nil
	}
	ctx, cancel := s.Within(ctx)
	defer cancel()
	got, err := s.Admin.UpdatePartitions(ctx, n, names...)
	if err != nil {
		return nil, s.Lost("adding partitions", err)
	}
	return func(name string) error {
		r, ok := got[name]
		return answered("adding partitions to "+name, r.Err, r.ErrMessage, ok)
	}, nil
}

func alterConfigs(ctx context.Context, s *cli.Session, set map[string]*string, removed, names []string) (outcomes, error) {
	var changes []kadm.AlterConfig
	for k, v := range set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: v})
	}
	for _, k := range removed {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	if len(changes) == 0 {
		return nothingDone, nil
	}
	ctx, cancel := s.Within(ctx)
	defer cancel()
	got, err := s.Admin.AlterTopicConfigs(ctx, changes, names...)
	if err != nil {
		return nil, s.Lost("altering topics", err)
	}
	return func(name string) error {
		r, err := got.On(name, nil)
		return answered("altering topic "+name, r.Err, r.ErrMessage, err == nil)
	}, nil
}
