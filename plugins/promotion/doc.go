// Package promotion is the default policy for SYNC: register when every
// partition of a topic is in step and the back-off is over, demote when all of
// them have been failing for the demote timeout. It never promotes on lag.
package promotion
