package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseBytes reads 20MB (10^6), 16MiB (2^20), 1024.
func ParseBytes(s string) (float64, error) {
	units := []struct {
		name string
		n    float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
			return 0, fmt.Errorf("%q is no size such as 1KiB or 20MB", s)
		}
		return n * u.n, nil
	}
	return 0, nil
}

// ParseBandwidth reads a line's bytes per second; empty has no limit.
func ParseBandwidth(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := ParseBytes(s)
	if err != nil || n < 1e3 || n > 1e12 {
		return 0, Usage("--bandwidth %q: want from 1KB to 1000GB per second", s)
	}
	return int64(n), nil
}
