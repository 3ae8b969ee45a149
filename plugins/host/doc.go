// Package host runs policies for the broker: it numbers their instances, asks
// them under a deadline, and keeps a journal of what they wished and what came
// of it. Here the policies run inside the broker, behind the same border that
// their processes will have: an event in, wishes out, a fencing number on each.
package host
