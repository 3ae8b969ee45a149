// Package coordinator is the default policy for the life of a mirrored
// partition: desired state, stored state and what was measured in, the next
// event of the partition machine out.
package coordinator
