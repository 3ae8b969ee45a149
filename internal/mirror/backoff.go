package mirror

// Backoff is an exponential delay in milliseconds.
type Backoff struct {
	InitialMS int64 // delay of attempt 1, > 0
	MaxMS     int64
}

// Delay returns the pause before attempt (from 1): InitialMS doubled for each
// earlier one, at most MaxMS, then moved by up to a fifth either way. random is
// uniform in [0, 1).
func (b Backoff) Delay(attempt int32, random float64) int64 {
	if attempt < 1 {
		return 0
	}
	d := b.MaxMS
	if shift := uint(min(attempt-1, BackoffShiftMax)); b.InitialMS <= b.MaxMS>>shift {
		d = b.InitialMS << shift
	}
	return d + int64(float64(d)*(random-0.5)*0.4)
}
