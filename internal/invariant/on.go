//go:build invariants || race

package invariant

// Enabled tells whether dear checks run in this build.
const Enabled = true
