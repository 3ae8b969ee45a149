// Package invariant holds the asserts of the house.
//
// A broken invariant is a bug in Lockstep, never a fault of a client or of the
// machine: Check panics with the name of the law and the values that broke it.
// Cheap checks are always on. Dear ones are guarded by Enabled, which is true
// in builds with the tag "invariants" or with the race detector.
package invariant
