package invariant

import "testing"

func TestCheckNamesTheLaw(t *testing.T) {
	defer func() {
		v, ok := recover().(Violation)
		if !ok || v.Law != "MonotonicWatermark" || v.Detail != "5 4" {
			t.Fatalf("panic value %#v", v)
		}
	}()
	Check(true, "never")
	Check(false, "MonotonicWatermark", 5, 4)
}
