package sdk

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

type echo struct{ d Decision }

func (echo) Describe() Description { return Description{Kind: Release, Name: "echo", Version: "1"} }

func (e echo) Handle(x Event) (Decision, error) {
	switch x.Seq {
	case 1:
		panic("no")
	case 2:
		return Decision{}, errors.New("cannot")
	}
	d := e.d
	d.Wishes[0].Subject = x.Subject
	return d, nil
}

// TestLoopback: what a process could not say is not said here either.
func TestLoopback(t *testing.T) {
	p := echo{Decision{Wishes: []Wish{{Do: Hold, Step: 3, Reason: "r"}}, Note: "n"}}
	about := Subject{Mirror: "m", Topic: "t", TopicID: [16]byte{7}, Partition: -1}
	for v := OldestProtocol; v <= NewestProtocol; v++ {
		l := Loopback(p, v)
		d, err := l.Handle(Event{Seq: 3, Type: RegisterAsked, Subject: about})
		want := Decision{Wishes: []Wish{{Do: Hold, Subject: about, Step: 3, Reason: "r"}}}
		if v >= 2 {
			want.Note = "n"
		}
		if err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("protocol %d: %+v %v", v, d, err)
		}
		if _, err := l.Handle(Event{Seq: 1, Subject: about}); err == nil || !strings.Contains(err.Error(), "panic: no") {
			t.Errorf("protocol %d: a panic is %v", v, err)
		}
		if _, err := l.Handle(Event{Seq: 2, Subject: about}); err == nil {
			t.Errorf("protocol %d: an error is none", v)
		}
		large := echo{Decision{Wishes: []Wish{{Do: Hold, Reason: strings.Repeat("x", MaxMessage)}}}}
		if _, err := Loopback(large, v).Handle(Event{Seq: 3, Subject: about}); err == nil {
			t.Errorf("protocol %d: a message has no bound", v)
		}
	}
}
