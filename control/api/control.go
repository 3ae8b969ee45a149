package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"lockstep/internal/meta"
	"lockstep/internal/status"
	"lockstep/internal/wire"
)

// What Propose can fail with.
var (
	// ErrNoController: the command was not accepted; it may be sent again.
	ErrNoController = errors.New("no active controller: the metadata quorum has no leader that can be reached")
	// ErrUnknownOutcome: the command may or may not have happened.
	ErrUnknownOutcome = errors.New("the outcome is not known: the metadata quorum lost its leader meanwhile")
)

// Control is the metadata quorum as these handlers need it.
type Control interface {
	View() *meta.View
	// Propose makes a command durable and returns Apply's answer at its commit
	// index; when it returns, View on this node includes it. Errors:
	// ErrNoController, ErrUnknownOutcome; any other counts as the latter.
	Propose(ctx context.Context, cmd meta.Message) (meta.Result, error)
}

// Data is the data plane of this broker.
type Data interface {
	Status(id [16]byte, partition int32) (status.Partition, bool)
	Statuses() []status.Partition
	// DeleteRecords raises the log start offset; before is an offset or -1 for
	// the high watermark.
	DeleteRecords(topic string, partition int32, before int64) (low int64, code wire.ErrorCode)
	// EpochEnd returns the largest epoch at or below epoch and its end offset,
	// -1 and -1 if there is none.
	EpochEnd(topic string, partition, currentLeaderEpoch, epoch int32) (foundEpoch int32, end int64, code wire.ErrorCode)
	Dirs() []status.Dir
}

// Mirrors carries out what needs another cluster or a barrier. Outcomes come in
// the order of the topics asked for; those of Unregister with All in any order.
type Mirrors interface {
	// Create fills mirror.source.cluster.id by asking the source.
	Create(ctx context.Context, name string, configs map[string]string) Outcome
	Delete(ctx context.Context, name string) Outcome
	AddTopics(ctx context.Context, topics []AddTopic) []TopicOutcome
	// RemoveTopics stops mirroring: it is the fail-over.
	RemoveTopics(ctx context.Context, mirror string, topics []string) []TopicOutcome
	AlterType(ctx context.Context, mirror string, topics []AlterTopic) []TopicOutcome
	// Register and Unregister are the source's side.
	Register(ctx context.Context, r RegisterRequest) []RegisterOutcome
	Unregister(ctx context.Context, r UnregisterRequest) []RegisterOutcome
}

// Outcome is how an operation ended.
type Outcome struct {
	Code    wire.ErrorCode
	Message string // "" = nothing to say
}

// TopicOutcome is the outcome for one topic.
type TopicOutcome struct {
	Name string
	Outcome
}

// AddTopic is a topic to mirror. A zero ID is the source's business to tell.
type AddTopic struct {
	Name   string
	ID     [16]byte
	Mirror string
	Type   int8 // 0 ASYNC, 1 SYNC
}

// AlterTopic is a topic whose desired type changes.
type AlterTopic struct {
	Name string
	ID   [16]byte
	Type int8
}

// RegisterRequest is what a destination asks of us as its source.
type RegisterRequest struct {
	Mirror    string
	ClusterID string // the destination's; "" = it did not say
	Topics    []RegisterTopic
}

// RegisterTopic is one topic of it. ReleaseNumber -1 = not named.
type RegisterTopic struct {
	Name          string
	ID            [16]byte
	Recovery      bool
	ReleaseNumber int64
}

// UnregisterRequest ends registrations, or releases them.
type UnregisterRequest struct {
	Mirror    string
	ClusterID string
	Release   bool
	Topics    []UnregisterTopic
	All       bool // all topics of the mirror; Topics is empty
}

// UnregisterTopic is one topic of it. Epoch -1 = whichever registration stands.
type UnregisterTopic struct {
	Name  string
	ID    [16]byte
	Epoch int64
}

// RegisterOutcome is the answer for one topic. Epoch is the registration that
// stands afterwards: 0 none, -1 not said. ReleaseNumber is the release that a
// recovery has to name, -1 none.
type RegisterOutcome struct {
	Name          string
	Code          wire.ErrorCode
	Message       string
	Epoch         int64
	ReleaseNumber int64
}

// propose sends a command and bounds the wait: timeoutMs is the request's own,
// ≤ 0 = the broker's. A nil result comes with the outcome to answer.
func (s *Server) propose(ctx context.Context, cmd meta.Message, timeoutMs int32) (*meta.Result, Outcome) {
	if len(meta.Encode(cmd)) > meta.MaxCommandBytes {
		return nil, Outcome{wire.ErrInvalidRequest, "the request is larger than one metadata command (1 MiB): split it"}
	}
	if timeoutMs <= 0 {
		timeoutMs = s.d.Config.RequestTimeoutMs
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(timeoutMs)*time.Millisecond, maxWait))
	defer cancel()
	res, err := s.d.Control.Propose(ctx, cmd)
	switch {
	case errors.Is(err, ErrNoController):
		return nil, Outcome{wire.ErrNotController, "no active controller: nothing was done; try again, and if that lasts, see that a majority of the controllers runs"}
	case err != nil:
		return nil, Outcome{wire.ErrRequestTimedOut, "the outcome is not known: look whether it was done before you try again"}
	case res.ErrorCode != 0:
		return nil, refused(res.ErrorCode, res.ErrorMessage)
	}
	return &res, Outcome{}
}

// item is the outcome of item i of a command that was carried out.
func item(res *meta.Result, i int) Outcome {
	if i >= len(res.Items) {
		return Outcome{wire.ErrUnknownServerError, "the controller did not answer for this item: look whether it was done"}
	}
	if it := &res.Items[i]; it.ErrorCode != 0 {
		return refused(it.ErrorCode, it.ErrorMessage)
	}
	return Outcome{}
}

// refused is the outcome of what Apply refused.
func refused(code int16, text *string) Outcome {
	o := Outcome{Code: wire.ErrorCode(code), Message: wire.ErrorCode(code).Message()}
	if text != nil {
		o.Message = *text
	}
	return advised(o)
}

// advised adds to a reason what to do next, unless the reason says it itself.
func advised(o Outcome) Outcome {
	if next := nextStep[o.Code]; next != "" && !strings.Contains(o.Message, ": ") {
		o.Message += "; " + next
	}
	return o
}

var nextStep = map[wire.ErrorCode]string{
	wire.ErrUnknownTopicOrPartition:  "list the topics to see which exist",
	wire.ErrUnknownTopicId:           "the topic was deleted or made anew: ask for its metadata again",
	wire.ErrInvalidTopic:             "choose another name",
	wire.ErrUnsupportedVersion:       "run the same release on all brokers",
	wire.ErrTopicAlreadyExists:       "choose another name, or delete that topic first",
	wire.ErrInvalidPartitions:        "a topic, and all topics of a request, can have 100000 at most",
	wire.ErrInvalidReplicationFactor: "lower it, or start more brokers",
	wire.ErrInvalidReplicaAssignment: "correct the assignment, or leave it to the controller",
	wire.ErrInvalidConfig:            "correct the setting",
	wire.ErrStaleBrokerEpoch:         "the broker registers again by itself: try again",
	wire.ErrInconsistentTopicId:      "ask for the topic's metadata again",
	wire.ErrUnknownClusterMirror:     "list the mirrors to see which exist",

	wire.ErrTopicAlreadyInClusterMirror: "stop it there first",
	wire.ErrTopicNotInClusterMirror:     "list the mirrors with their topics",
	wire.ErrMirrorTopicBeingStopped:     "wait until describe shows STOPPED on all partitions",
	wire.ErrMirrorTopicNotStopped:       "stop it first",
	wire.ErrClusterMirrorNotEmpty:       "stop its topics, and wait until describe shows STOPPED",
	wire.ErrMirrorSyncVersionMismatch:   "set mirror.sync.version to 1 when all brokers run this release",
}

// badConfig makes an outcome of what internal/config says of a setting.
func badConfig(err error) Outcome {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "config: "), "override: ")
	if !strings.HasSuffix(text, "?") {
		text += ": correct the setting"
	}
	return Outcome{wire.ErrInvalidConfig, text}
}

// words makes an optional text of a message.
func words(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
