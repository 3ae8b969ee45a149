package mirror

const (
	// UnregisterTimeoutMS is how long a stop waits for its one Unregister.
	UnregisterTimeoutMS = 5000
	// ResendCapMS caps the pause before a Register of unknown outcome is resent.
	ResendCapMS = 1000
	// BackoffShiftMax bounds the doublings of a back-off.
	BackoffShiftMax = 30
)
