package api

import (
	"lockstep/internal/meta"
	"lockstep/internal/wire"
)

// resolve finds the topic that a mirror request names by name, id or both. The
// outcome says why there is none that fits.
func resolve(v *meta.View, name string, id [16]byte) (*meta.Topic, Outcome) {
	byName := v.TopicByName(name)
	switch {
	case id == [16]byte{} && name == "":
		return nil, Outcome{wire.ErrInvalidRequest, "a topic is named neither by name nor by id: give one of them"}
	case id == [16]byte{} && byName == nil:
		return nil, Outcome{wire.ErrUnknownTopicOrPartition, "no topic " + name + ": list the topics to see which exist"}
	case id == [16]byte{}:
		return byName, Outcome{}
	}
	byID := v.TopicByID(id)
	switch {
	case byID == nil && byName != nil:
		return nil, Outcome{wire.ErrInconsistentTopicId, "topic " + name + " has another id here: it was made anew, so ask for its metadata again"}
	case byID == nil:
		return nil, Outcome{wire.ErrUnknownTopicId, "no topic with that id: it was deleted or made anew, so ask for its metadata again"}
	case name != "" && byID.Name != name:
		return nil, Outcome{wire.ErrInconsistentTopicId, "that id belongs to topic " + byID.Name + ": ask for the topic's metadata again"}
	}
	return byID, Outcome{}
}

// unknownMirror refuses a mirror that does not exist.
func unknownMirror(v *meta.View, name string) Outcome {
	switch {
	case name == "":
		return Outcome{wire.ErrInvalidRequest, "no mirror is named: give its name"}
	case v.Mirror(name) == nil:
		return Outcome{wire.ErrUnknownClusterMirror, "no mirror " + name + ": create it first, or list the mirrors to see which exist"}
	}
	return Outcome{}
}

// merge puts the outcomes of the topics that were passed on, at their places in
// the request, among those refused here.
func merge(all []TopicOutcome, places []int, done []TopicOutcome) {
	for k, at := range places {
		if k >= len(done) {
			all[at].Outcome = Outcome{wire.ErrUnknownServerError, "no answer for this topic: describe the mirror to see whether it was done"}
			continue
		}
		all[at].Outcome = advised(done[k].Outcome)
	}
}

// badType refuses a mirror type that is neither ASYNC nor SYNC.
func badType(t int8) bool { return t != 0 && t != 1 }

const badTypeText = "a mirror type is 0 (ASYNC) or 1 (SYNC): give one of them"
