// Package report holds what a comparison measured, as JSON, and makes a page and
// plots of it.
//
//	peers.json ──┐
//	             ├──► Page ──► RESULTS.md, *.svg
//	ack*.json ───┤
//	soak.json ───┘
//
// Laws:
//   - A ratio is taken pair by pair, of two figures of one round, before a median
//     is: what the machine did meanwhile is in both.
//   - A page says where we are no better as plainly as where we are: that part is
//     computed from the same series.
//   - What a person wrote between the page's two marks stays.
//
// Owner thread: the caller's; all of it is functions of values.
package report
