package meta

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	"lockstep/internal/mirror"
)

// AppendDump appends the mirror facts as JSON lines in the layouts of the KIP's
// records, each with its record's name: per mirrored topic the effective type
// and per partition its state, per source topic its live registrations, and per
// registering mirror its ledger entry. It is for people and tools; nothing
// reads it back.
func AppendDump(b []byte, v *View) []byte {
	ledgers := map[string][]syncTopic{}
	for t := range v.Topics() {
		id := base64.RawURLEncoding.EncodeToString(t.ID[:])
		if t.Mirror != nil {
			b = appendLine(b, "MirrorTopicTypeChangeRecord", 31, nil, map[string]any{
				"topicId": id, "mirrorType": int8(t.Mirror.EffectiveType())})
			b = appendStates(b, t, id)
		}
		for _, r := range t.Registrations {
			b = appendLine(b, "MirrorSyncRegistrationChangeRecord", 32, nil, map[string]any{
				"topicId": id, "mirrorName": r.Mirror, "registered": r.Gates()})
			ledgers[r.Mirror] = append(ledgers[r.Mirror], syncTopic{t.Name, id, r.Released, r.Epoch, r.ReleaseNumber, r.ClusterID})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ledgers)) {
		b = appendLine(b, "MirrorSyncRegistration", 3, map[string]any{"mirrorName": name}, map[string]any{"topics": ledgers[name]})
	}
	return b
}

// syncTopic is the KIP's SyncTopic, and what ours knows beyond it.
type syncTopic struct {
	Name              string `json:"name"`
	TopicID           string `json:"topicId"`
	Released          bool   `json:"released"`
	RegistrationEpoch int64  `json:"registrationEpoch"`
	ReleaseNumber     int64  `json:"releaseNumber"`
	ClusterID         string `json:"destinationClusterId"`
}

func appendStates(b []byte, t *Topic, id string) []byte {
	for i, p := range t.Partitions {
		retry := p.RetryAttempt
		if p.State == mirror.Failed && p.NonRetryable {
			retry = -1
		}
		b = appendLine(b, "MirrorPartitionState", 2,
			map[string]any{"mirrorName": t.Mirror.Mirror, "topicId": id, "partition": i},
			map[string]any{"topicName": t.Name, "partition": i, "state": int8(p.State), "previousState": int8(p.Previous),
				"retryAttempt": retry, "desiredMirrorType": int8(t.Mirror.DesiredType())})
	}
	return b
}

func appendLine(b []byte, name string, apiKey int16, key, value map[string]any) []byte {
	line := map[string]any{"record": name, "apiKey": apiKey, "value": value}
	if key != nil {
		line["key"] = key
	}
	// Maps with string keys, numbers, strings and bools always encode.
	text, _ := json.Marshal(line)
	return append(append(b, text...), '\n')
}
