package cli

import "testing"

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]float64{"1024": 1024, "1KiB": 1024, "20MB": 20e6, "1.5MiB": 1.5 * (1 << 20), "3GB": 3e9, "7B": 7} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%s: %v, err %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MB", "ten", "-1", "1TB", "InfMB", "1 MB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	for text, want := range map[string]int64{"": 0, "20MB": 20e6, "1KiB": 1024} {
		if got, err := ParseBandwidth(text); err != nil || got != want {
			t.Errorf("%q: %v, err %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "1B", "2000GB", "fast"} {
		if _, err := ParseBandwidth(text); err == nil {
			t.Errorf("%q is no bandwidth", text)
		}
	}
}
