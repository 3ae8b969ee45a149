package mirror

// Type is a topic's mirror type. The numbers are the KIP's.
type Type int8

// The types.
const (
	Async Type = 0
	Sync  Type = 1
)

func (t Type) String() string {
	if t == Sync {
		return "SYNC"
	}
	return "ASYNC"
}

// Phase is where a topic stands between ASYNC and SYNC, on the destination.
type Phase uint8

// The phases. Only InSync is effectively SYNC.
const (
	PlainAsync  Phase = iota // desired ASYNC
	Pending                  // desired SYNC, waits to be in step
	Registering              // a Register may stand at the source
	InSync                   // the source gates on us and our fetchers report
	Recovery                 // as Pending, after a release or after all partitions failed
	phases
)

func (p Phase) String() string {
	return [...]string{"ASYNC", "PENDING", "REGISTERING", "SYNC", "RECOVERY"}[p]
}

// UnknownEpoch in OwedUnregister: a Register was sent and its answer is not
// known, so the epoch to remove must first be asked for.
const UnknownEpoch int64 = -1

// Promotion is the machine's state, durable as a whole.
type Promotion struct {
	Phase             Phase
	RegistrationEpoch int64 // in InSync: the one our reports name
	// Recovery: the source said that it has released us. The next Register
	// carries the hint and ReleaseNumber (0 = a peer that numbers nothing).
	Recovery      bool
	ReleaseNumber int64
	// OwedUnregister is the epoch the source must be told to remove: 0 none.
	// Held back in Registering, where the newer Register cancels it.
	OwedUnregister int64
	// SpentEpoch is the highest epoch we have owed. A late OK that names it or
	// less promises a registration that we have had removed.
	SpentEpoch int64
	Attempts   int32 // failed Registers in a row; the back-off's own counter
}

// DesiredType is the operator's wish.
func (p Promotion) DesiredType() Type {
	if p.Phase == PlainAsync {
		return Async
	}
	return Sync
}

// EffectiveType drives the fetchers.
func (p Promotion) EffectiveType() Type {
	if p.Phase == InSync {
		return Sync
	}
	return Async
}

// PromotionEventKind is what happens to a promotion.
type PromotionEventKind uint8

// The events. Number is the registration epoch of RegisterOK, the release
// number of RegisterReleased, and of UnregisterAnswered the epoch of ours that
// stands at the source after it (0 none).
const (
	DesiredSync PromotionEventKind = iota
	DesiredAsync
	InStep // every partition measured in step, and the back-off is over
	NotInStep
	RegisterOK
	RegisterReleased
	RegisterMismatch    // the source cannot gate: feature off, too old
	RegisterUnreachable // not answered, and no sense in asking again at once
	RegisterUnknown     // sent, connection lost or timed out
	AllFailing          // every partition failing for the demote timeout
	Pause
	Stop
	UnregisterAnswered
	UnregisterDue // the retry timer of an owed Unregister
	Resumed       // a new coordinator has read this state
	promotionEvents
)

func (e PromotionEventKind) String() string {
	return [...]string{"DesiredSync", "DesiredAsync", "InStep", "NotInStep", "RegisterOK", "RegisterReleased",
		"RegisterMismatch", "RegisterUnreachable", "RegisterUnknown", "AllFailing", "Pause", "Stop",
		"UnregisterAnswered", "UnregisterDue", "Resumed"}[e]
}

// PromotionEvent is an event with its number.
type PromotionEvent struct {
	Kind   PromotionEventKind
	Number int64
	Asked  int64 // UnregisterAnswered: the epoch that SendUnregister named
}

// PromotionEffectKind is what the coordinator does, in the order given: a Send
// follows only when the commit before it is durable.
type PromotionEffectKind uint8

// The effects.
const (
	CommitRegistering PromotionEffectKind = iota
	CommitSync                            // Number: registration epoch
	CommitAsync                           // any change that leaves or keeps effective ASYNC; Number: owed epoch
	SendRegister                          // Recovery, Number: release number or 0
	SendUnregister                        // Number: epoch; 0 = only ask which one stands
	BackOff                               // Number: attempt
)

func (e PromotionEffectKind) String() string {
	return [...]string{"CommitRegistering", "CommitSync", "CommitAsync", "SendRegister", "SendUnregister", "BackOff"}[e]
}

// PromotionEffect is an effect with its arguments.
type PromotionEffect struct {
	Kind     PromotionEffectKind
	Number   int64
	Recovery bool
}

// Step moves a promotion. Every pair is defined.
func (p Promotion) Step(e PromotionEvent) (Promotion, []PromotionEffect) {
	switch e.Kind {
	case DesiredSync:
		if p.Phase == PlainAsync {
			p.Phase, p.Attempts = Pending, 0
			return p.commitAsync(nil)
		}
	case DesiredAsync:
		return p.leave(PlainAsync)
	case Pause:
		if p.Phase != PlainAsync && p.Phase != Pending && p.Phase != Recovery {
			return p.leave(p.waiting())
		}
	case Stop:
		return p.stop()
	case InStep:
		if p.Phase == Pending || p.Phase == Recovery {
			p.Phase, p.OwedUnregister = Registering, UnknownEpoch
			return p, []PromotionEffect{{Kind: CommitRegistering}, p.register()}
		}
	case AllFailing:
		if p.Phase == InSync {
			// Whether we were released we do not know. So no hint: if we were,
			// the source answers with the number of the release.
			return p.leave(Recovery)
		}
	case RegisterOK, RegisterReleased, RegisterMismatch, RegisterUnreachable, RegisterUnknown:
		return p.answer(e)
	case UnregisterAnswered:
		return p.unregistered(e.Asked, e.Number)
	case UnregisterDue:
		return p, p.unregister()
	case Resumed:
		if p.Phase == Registering {
			return p, []PromotionEffect{p.register()}
		}
		return p, p.unregister()
	}
	return p, nil
}

func (p Promotion) answer(e PromotionEvent) (Promotion, []PromotionEffect) {
	if p.Phase != Registering {
		return p.lateAnswer(e)
	}
	switch e.Kind {
	case RegisterOK:
		if e.Number <= p.SpentEpoch {
			return p, nil
		}
		p = Promotion{Phase: InSync, RegistrationEpoch: e.Number, SpentEpoch: p.SpentEpoch}
		return p, []PromotionEffect{{Kind: CommitSync, Number: e.Number}}
	case RegisterReleased:
		if e.Number > 0 && e.Number < p.ReleaseNumber {
			return p, nil // the answer to a Register from before we knew the newer release
		}
		// What this answers may not be the last that was sent: a Register that
		// names the right release can still be admitted. So the word stays owed.
		p.Phase, p.Recovery, p.ReleaseNumber = Recovery, true, max(e.Number, 0)
	case RegisterUnknown:
		return p, []PromotionEffect{p.register()}
	case RegisterMismatch, RegisterUnreachable:
		// An earlier try may have been admitted: the Unregister stays owed.
		p.Phase = p.waiting()
	}
	p.Attempts++
	return p.commitAsync([]PromotionEffect{{Kind: BackOff, Number: int64(p.Attempts)}})
}

// lateAnswer handles the answer to a Register we no longer wait for.
func (p Promotion) lateAnswer(e PromotionEvent) (Promotion, []PromotionEffect) {
	switch {
	case e.Kind == RegisterOK && p.Phase == InSync:
		if e.Number > p.RegistrationEpoch { // a resend was admitted after the first
			p.RegistrationEpoch = e.Number
			return p, []PromotionEffect{{Kind: CommitSync, Number: e.Number}}
		}
	case e.Kind == RegisterOK && e.Number > p.SpentEpoch:
		p = p.owe(e.Number)
		return p.commitAsync(p.unregister())
	case e.Kind == RegisterReleased && p.Phase == InSync:
		if e.Number > p.RegistrationEpoch { // released after it admitted us
			p = Promotion{Phase: Recovery, Recovery: true, ReleaseNumber: e.Number, SpentEpoch: p.SpentEpoch, Attempts: 1}
			return p.commitAsync([]PromotionEffect{{Kind: BackOff, Number: 1}})
		}
	case e.Kind == RegisterReleased && p.Phase != PlainAsync && e.Number > p.ReleaseNumber:
		p.Phase, p.Recovery, p.ReleaseNumber = Recovery, true, max(e.Number, 0)
		return p.commitAsync(nil)
	}
	return p, nil
}

// leave ends gating (or the wish for it) at once and owes the source the word.
func (p Promotion) leave(to Phase) (Promotion, []PromotionEffect) {
	before := p
	if p.Phase == InSync {
		p = p.owe(p.RegistrationEpoch)
	}
	p.Phase, p.RegistrationEpoch = to, 0
	if to == PlainAsync {
		p.Recovery, p.ReleaseNumber, p.Attempts = false, 0, 0
	}
	if p == before {
		return p, nil
	}
	return p.commitAsync(p.unregister())
}

// stop clears everything and unregisters once; nothing stays owed, because a
// stopped mirror has nobody left to retry it.
func (p Promotion) stop() (Promotion, []PromotionEffect) {
	if p == (Promotion{}) {
		return p, nil
	}
	left, _ := p.leave(PlainAsync)
	send := left.unregister()
	return Promotion{}.commitAsync(send)
}

func (p Promotion) unregistered(asked, standing int64) (Promotion, []PromotionEffect) {
	switch {
	case p.Phase == Registering || p.Phase == InSync:
		return p, nil // about an older registration: this one is newer
	case p.OwedUnregister == standing:
		return p, nil
	case asked != max(p.OwedUnregister, 0) && standing <= max(p.OwedUnregister, 0):
		return p, nil // the answer to an earlier question
	}
	p = p.owe(standing)
	return p.commitAsync(p.unregister())
}

func (p Promotion) owe(epoch int64) Promotion {
	p.OwedUnregister, p.SpentEpoch = epoch, max(p.SpentEpoch, epoch)
	return p
}

// waiting is the phase for a promotion that waits to be in step.
func (p Promotion) waiting() Phase {
	if p.Recovery {
		return Recovery
	}
	return Pending
}

func (p Promotion) register() PromotionEffect {
	return PromotionEffect{Kind: SendRegister, Recovery: p.Recovery, Number: p.ReleaseNumber}
}

func (p Promotion) unregister() []PromotionEffect {
	if p.OwedUnregister == 0 || p.Phase == Registering {
		return nil
	}
	return []PromotionEffect{{Kind: SendUnregister, Number: max(p.OwedUnregister, 0)}}
}

func (p Promotion) commitAsync(then []PromotionEffect) (Promotion, []PromotionEffect) {
	return p, append([]PromotionEffect{{Kind: CommitAsync, Number: p.OwedUnregister}}, then...)
}
