package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Rows are the cells of a table of series: goal, case, figure, ours, the base's,
// median of the ratios, the least and the most of them, what is wanted.
func Rows(series []*Series) (rows [][]string) {
	for _, s := range series {
		if s.Median(s.Ours) == 0 && len(s.Ratios()) == 0 {
			continue // its side took no part
		}
		row := []string{s.Goal, s.Case, s.Metric, short(s.Median(s.Ours)) + named(s.Ours), "-", "-", "-", "-", s.wanted()}
		if r := s.Ratios(); len(r) > 0 {
			row[4], row[5], row[6], row[7] = short(s.Median(s.Base))+" "+s.Base, short(Median(r)), short(r[0]), short(r[len(r)-1])
		}
		rows = append(rows, row)
	}
	return rows
}

// named tells a side of ours from the plain one.
func named(side string) string {
	if side == "lockstep" {
		return ""
	}
	return " " + side
}

func (s *Series) wanted() string {
	if s.Bound == 0 {
		return ""
	}
	sign, met := "≥", "met"
	if s.Lower {
		sign = "≤"
	}
	if !s.Met() {
		met = "not met"
	}
	return fmt.Sprintf("%s %s: %s", sign, short(s.Bound), met)
}

// short has three digits that count.
func short(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Sides shows the figures of a round.
func Sides(round map[string]float64) string {
	var list []string
	for _, side := range slices.Sorted(maps.Keys(round)) {
		list = append(list, side+" "+short(round[side]))
	}
	return strings.Join(list, ", ")
}
