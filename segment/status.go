package segment

import "errors"

// Failed tells whether the log can no longer be written or read: its directory
// has failed or it was closed.
func (l *Log) Failed() bool { return l.err() != nil }

// Dir returns the directory the log lies in.
func (l *Log) Dir() *Dir { return l.dir }

// IsOutOfRange tells an offset that the log does not have from a failed log.
func IsOutOfRange(err error) bool { return errors.Is(err, ErrOffsetOutOfRange) }
