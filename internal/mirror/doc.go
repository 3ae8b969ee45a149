// Package mirror is the life of a mirror as pure machines: a state and an event
// go in, the next state and the effects to carry out come back. Nothing here
// keeps time, sends or stores; every (state, event) pair is defined, and
// testdata/*.transitions prints all of them.
//
// Owner: the machines are values. Partition leaders on the destination drive
// Partition and StopStep, the active controller drives Promotion; Register,
// Unregister and Release are evaluated by meta.Apply at the commit index. The
// same functions guard the wishes of plugins (guard.go).
//
// Law: durable before done. The new state is committed first, then the effects
// run, and all effects are idempotent, because a new owner runs them again.
//
//	partition (destination)                     promotion (destination, per topic)
//
//	UNKNOWN ─► LOG_TRUNCATION ─► MIRRORING      ASYNC ⇄ PENDING ─in step► REGISTERING
//	                 ▲    │        │   ▲                   ▲ ▲   ◄─mismatch──┘ │   │
//	                 │    ▼        ▼   │                   │ │        released │   │ OK
//	                 │   EPOCH_FENCING─┘                   │ RECOVERY ◄────────┘   ▼
//	   any ─fail─► FAILED ─retry─► previous                │     ▲──all failing── SYNC
//	   any ─pause─► PAUSING ─► PAUSED ─► MIRRORING         └─────────pause─────────┘
//	   any ─stop──► STOPPING ─► STOPPED         any ─async─► ASYNC, Unregister owed
//
//	stopping (destination)                      ledger (source, per topic and mirror)
//
//	UNREGISTER ► FETCHERS_OFF ► LINEAGE ►       absent ─Register► registered(epoch)
//	BUMP_EPOCH ► ABORT_MARKERS ► PID_RESET ►    registered ─Unregister(epoch)► absent
//	CLEAR_TYPES ► STOPPED                       registered ─Release► released(number)
//	                                            released ─Register(recovery, number)► registered
//
// Laws of the pair promotion × ledger, checked over all interleavings of late
// and lost messages in model_test.go: in SYNC the source gates, or it has
// released us since; a marker is cleared only by a Register that answers its
// release; a late Unregister never removes a newer registration; a released
// mirror never gates.
package mirror
