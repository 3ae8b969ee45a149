// Package baseline measures what a machine gives without a broker: how long an
// fdatasync of appended bytes takes, and one byte over loopback and back. They
// are taken in the same minute as the figures they stand beside.
//
// Owner thread: the caller's; Loopback has one goroutine, which ends with it.
package baseline
