package main

import (
	"os"
	"strings"
	"testing"

	"lockstep/plugins/sdk"
	"lockstep/plugins/sdk/conformance"
)

func TestConformance(t *testing.T) {
	for seed := range uint64(3) {
		for _, v := range conformance.Check(sdk.Promotion, Patient{}, seed) {
			t.Error(v)
		}
	}
}

// The manual shows this program.
func TestIsTheManuals(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```go\n"+string(program)+"```") {
		t.Error("docs/plugins.md shows another program than main.go")
	}
}
