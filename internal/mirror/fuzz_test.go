package mirror

import (
	"slices"
	"testing"
)

// FuzzPromotion: any history of events and numbers, sensible or not. SYNC
// begins only by a source's OK that is not spent, ends only for the reasons
// there are, and what changes is committed before anything is sent.
func FuzzPromotion(f *testing.F) {
	f.Add([]byte{byte(DesiredSync), 0, 0, byte(InStep), 0, 0, byte(RegisterOK), 5, 0, byte(AllFailing), 0, 0, byte(UnregisterAnswered), 0, 5, byte(InStep), 0, 0, byte(RegisterReleased), 9, 0, byte(Stop), 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Promotion
		for ; len(data) >= 3; data = data[3:] {
			e := PromotionEvent{PromotionEventKind(data[0]) % promotionEvents, int64(int8(data[1])), int64(int8(data[2]))}
			next, effects := p.Step(e)
			if why := unlawful(p, next, e, effects); why != "" {
				t.Fatalf("%s: %+v --%+v--> %+v, %+v", why, p, e, next, effects)
			}
			p = next
		}
	})
}

func unlawful(p, next Promotion, e PromotionEvent, effects []PromotionEffect) string {
	commits := func(f PromotionEffect) bool { return f.Kind <= CommitAsync }
	sends := func(f PromotionEffect) bool { return f.Kind == SendRegister || f.Kind == SendUnregister }
	switch commit, send := slices.IndexFunc(effects, commits), slices.IndexFunc(effects, sends); {
	case next.Phase >= phases:
		return "no such phase"
	case next.Phase == InSync && p.Phase != InSync && (e.Kind != RegisterOK || p.Phase != Registering || e.Number <= p.SpentEpoch):
		return "SYNC without an OK that is awaited and not spent"
	case p.Phase == InSync && next.Phase != InSync && !slices.Contains([]PromotionEventKind{DesiredAsync, Pause, Stop, AllFailing, RegisterReleased}, e.Kind):
		return "SYNC ended for no reason"
	case next.Phase != InSync && next.RegistrationEpoch != 0:
		return "a registration without SYNC"
	case next.Phase != PlainAsync && p.Phase == PlainAsync && e.Kind != DesiredSync:
		return "nobody wished for SYNC"
	case e.Kind != Stop && next.SpentEpoch < p.SpentEpoch:
		return "a spent epoch counts again"
	case next != p && commit != 0:
		return "a change that is not committed first"
	case commit > 0 || commit >= 0 && send >= 0 && send < commit:
		return "sent before the commit"
	case p.Phase == InSync && next.Phase != InSync && e.Kind != RegisterReleased && e.Kind != Stop && next.OwedUnregister != p.RegistrationEpoch:
		return "left a registration that gates and owes no word"
	}
	return ""
}

// FuzzPartition: any history from any state. A stop that has begun ends in
// STOPPED and nowhere else, nothing else becomes writable, and every change is
// one that is allowed.
func FuzzPartition(f *testing.F) {
	f.Add(uint8(0), []byte{byte(WantMirroring), byte(Aligned), byte(EpochBehind), byte(Fail), byte(Retry), byte(EpochRaised), byte(WantStopped), byte(Fail), byte(WantMirroring), byte(StopDone)})
	f.Fuzz(func(t *testing.T, from uint8, events []byte) {
		p := Partition{State: PartitionStates[int(from)%len(PartitionStates)], Previous: Unknown}
		for _, b := range events {
			e := PartitionEvent(b) % partitionEvents
			next, effects := p.Step(e)
			_ = next.State.String()
			switch {
			case !Allowed(p.State, next.State):
				t.Fatalf("%+v --%v--> %+v is not allowed", p, e, next)
			case p.State == Stopping && next.State != Stopping && (next.State != Stopped || e != StopDone):
				t.Fatalf("%+v --%v--> %+v leaves a stop", p, e, next)
			case next.State == Stopped && p.State != Stopped && (p.State != Stopping || e != StopDone):
				t.Fatalf("%+v --%v--> %+v is writable", p, e, next)
			case p.State == Failed && p.NonRetryable && next.State != Failed && e != WantStopped && e != WantPaused:
				t.Fatalf("%+v --%v--> %+v: it failed for good", p, e, next)
			case slices.Contains(effects, RunFetcher) && next.State != Mirroring:
				t.Fatalf("%+v --%v--> %+v runs a fetcher", p, e, next)
			}
			p = next
		}
	})
}

// FuzzLedger: any requests in any order. Every admitted Register gets a new
// epoch; only an Unregister that names it removes it; only a recovery that
// names the last release, or none, clears a marker.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 0, 1, 1, 0, 0, 1, 2, 1, 0, 5, 0, 3, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var old Registration
		exists, index := false, int64(0)
		clusters := []string{"", "a", "b"}
		for ; len(data) >= 3; data = data[3:] {
			index++
			flags, cluster, number := data[0]>>2, clusters[int(data[1])%3], int64(int8(data[2]))
			var d Decision
			switch data[0] & 3 {
			case 0, 3:
				req := RegisterRequest{Mirror: "m", ClusterID: cluster, Recovery: flags&1 != 0, ReleaseNumber: number}
				d = Register(old, exists, req, LedgerFacts{Index: index, SyncOn: flags&2 == 0, Mirrored: flags&4 != 0, Held: flags&8 != 0})
				cleared := exists && old.Released && d.Exists && !d.Entry.Released
				if cleared && (!req.Recovery || number > 0 && number != old.ReleaseNumber) {
					t.Fatalf("%+v cleared %+v", req, old)
				}
				if d.Code == Admitted && (d.Entry.Epoch != index || !d.Entry.Gates()) {
					t.Fatalf("admitted as %+v at %d", d.Entry, index)
				}
				if exists && !old.Released && cluster != old.ClusterID && d.Changed {
					t.Fatalf("cluster %q took the place of %q", cluster, old.ClusterID)
				}
			case 1:
				d = Unregister(old, exists, cluster, number)
				if exists && !d.Exists && (old.Released || number != AnyEpoch && number != old.Epoch || cluster != old.ClusterID) {
					t.Fatalf("epoch %d of %q removed %+v", number, cluster, old)
				}
			case 2:
				d = Release(old, exists, number, index)
				if d.Changed && (!d.Entry.Released || d.Entry.ReleaseNumber != index || d.Entry.Gates()) {
					t.Fatalf("released as %+v", d.Entry)
				}
				if want := exists && (number == AnyEpoch || !old.Released && number == old.Epoch); d.Changed != want {
					t.Fatalf("a release of epoch %d changed %+v: %v", number, old, d.Changed)
				}
			}
			if !d.Changed && (d.Exists != exists || d.Entry != old && exists) {
				t.Fatalf("%v changed %+v to %+v", d.Code, old, d.Entry)
			}
			_ = d.Code.String()
			old, exists = d.Entry, d.Exists
		}
	})
}

// FuzzStop: steps are never skipped backwards, and only the word of a step ends it.
func FuzzStop(f *testing.F) {
	f.Add([]byte{byte(StopBegun), byte(UnregisterOver), byte(FetchersDrained), byte(LineageStored), byte(StopResumed), byte(EpochBumped), byte(MarkersWritten), byte(StopResumedAppended), byte(PIDResetWritten), byte(TypesCleared)})
	f.Fuzz(func(t *testing.T, events []byte) {
		s, appended := StopUnregister, false
		for _, b := range events {
			e := StopEvent(b) % stopEvents
			if appended && e == StopResumed {
				e = StopResumedAppended // what is in the log stays in it
			}
			next, effects := s.Step(e)
			if next < 0 || next >= stopSteps || next > s+1 && e != StopResumed && e != StopResumedAppended {
				t.Fatalf("%v --%v--> %v", s, e, next)
			}
			if appended && slices.Contains(effects, StoreLineage) {
				t.Fatalf("%v --%v-->: the lineage is stored after our own appends", s, e)
			}
			if slices.Contains(effects, WriteAbortMarkers) || slices.Contains(effects, WritePIDReset) {
				appended = true
			}
			s = next
		}
	})
}
