// Package lint is the house reading itself: tests and nothing else.
//
//	layers_test.go   who may import whom; the closure of the hot path
//	size_test.go     lines of files and functions, with a list that only shrinks
//	banned_test.go   calls that make runs differ, each with its few files
//	docs_test.go     a doc.go for each package; no paths of a machine
//
// Owner: whoever runs the tests; there is no thread and no state.
//
// Law: a table here is changed together with the decision that changes it, and
// a list of exceptions gets shorter, not longer.
package lint
