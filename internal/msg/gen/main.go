package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen SCHEMA_DIR OUT_DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes the codecs of all schemas in schemaDir to outDir.
func run(schemaDir, outDir string) error {
	abs, err := filepath.Abs(outDir)
	if err != nil {
		return err
	}
	files, err := generate(schemaDir, filepath.Base(abs))
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(outDir, "*.gen.go"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := files[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, src := range files {
		if err := os.WriteFile(filepath.Join(outDir, name), src, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns file name → source for all schemas in dir.
func generate(dir, pkg string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	var all []*message
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parseMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		src, err := emitMessage(m, pkg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out[strings.ToLower(m.Name)+".gen.go"] = src
		all = append(all, m)
	}
	if len(out) != len(all) {
		return nil, fmt.Errorf("%s: two schemas have the same message name", dir)
	}
	index, err := emitIndex(all, pkg)
	if err != nil {
		return nil, err
	}
	out["messages.gen.go"] = index
	return out, nil
}
