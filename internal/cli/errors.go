package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Exit codes.
const (
	ExitFailed    = 1
	ExitUsage     = 2
	ExitVoid      = 3 // a measurement that does not count
	ExitUnhealthy = 10
)

// Error is a failure as a person reads it.
type Error struct {
	What string // failed
	Why  error
	Do   string // what to do; may be empty
	Code int    // exit code, 0 = ExitFailed
}

func (e *Error) Error() string {
	s := e.What
	if e.Why != nil {
		s += ": " + reason(e.Why)
	}
	if e.Do != "" {
		s += "; " + e.Do
	}
	return s
}

func (e *Error) Unwrap() error { return e.Why }

// Fail makes an Error.
func Fail(what string, why error, do string) error { return &Error{What: what, Why: why, Do: do} }

// Usage makes the error of a wrong call.
func Usage(format string, args ...any) error {
	return &Error{What: fmt.Sprintf(format, args...), Code: ExitUsage, Do: "see --help"}
}

// reason words an error of a cluster; Kafka's are named and explained.
func reason(err error) string {
	var ke *kerr.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &ke) && err == error(ke):
		return ke.Message + ": " + strings.TrimSuffix(ke.Description, ".")
	}
	return err.Error()
}

// Report writes err on w as one line and returns the exit code. ran tells
// whether the command had begun: before that, every error is one of usage.
func Report(w io.Writer, program string, err error, ran bool) int {
	if err == nil {
		return 0
	}
	code := ExitFailed
	if !ran {
		code = ExitUsage
	}
	var e *Error
	if errors.As(err, &e) && e.Code != 0 {
		code = e.Code
	}
	text := strings.TrimSpace(err.Error())
	if e == nil && !ran {
		text += "; see --help"
	}
	if text != "" {
		fmt.Fprintf(w, "%s: %s\n", program, text)
	}
	return code
}
