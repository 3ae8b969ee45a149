// Package sdk is what a plugin author imports. It imports nothing of Lockstep.
//
// A plugin advises, the broker acts. An event goes in, wishes come out; the
// broker checks each wish against what it has measured itself, makes it durable
// under the instance's fencing number, and only then acts on it. So a plugin
// owns no durable state and no clock: what it must know is in the event, time
// included, and a start, a crash and a swap are all the same. A wrong, slow or
// dead plugin stops changes; it cannot stop traffic or break the sync invariant.
package sdk
