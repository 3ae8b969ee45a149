package invariant

import "fmt"

// Violation is the value Check panics with.
type Violation struct {
	Law    string // the name of the law, as in docs/ARCHITECTURE.md
	Detail string // the values that broke it
}

func (v Violation) Error() string { return "invariant broken: " + v.Law + ": " + v.Detail }

// Check panics with a Violation when ok is false. The arguments are formatted
// as by fmt.Sprint and only then, so a passing check does not allocate for
// constant arguments.
func Check(ok bool, law string, values ...any) {
	if !ok {
		fail(law, values)
	}
}

//go:noinline
func fail(law string, values []any) {
	panic(Violation{Law: law, Detail: fmt.Sprint(values...)})
}
