// Command conformance prints which tests of a "go test -json" passed on which store, as a table in Markdown. It ends
// with status 1 if a test failed.
//
//	go test -json ./tests | go run ./tests/conformance
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// stores are the names of the kinds of tests/kit, by which subtests are named.
var stores = []string{"pgstore", "sqlitestore"}

// event is a line of "go test -json".
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// result is the result of one test on one store, with all its subtests there.
type result struct {
	passed, failed bool
	// needs are the reasons why subtests were skipped.
	needs []string
}

func (r result) String() string {
	needs := strings.Join(slices.Compact(slices.Sorted(slices.Values(r.needs))), ", ")
	switch {
	case r.failed:
		return "FAILED"
	case r.passed && needs != "":
		return "passed, but for subtests that need " + needs
	case r.passed:
		return "passed"
	case needs != "":
		return "needs " + needs
	}
	return "not run"
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	table, log, err := read(in)
	if err != nil {
		return err
	}
	if err := table.print(out); err != nil {
		return err
	}
	if log != "" {
		return fmt.Errorf("\n%s", log)
	}
	if len(table) == 0 {
		return errors.New("no test ran on a store")
	}
	return nil
}

// results are those of each test, by its name and the store.
type results map[string]map[string]*result

// read reads the lines of "go test -json". log is the output of failed tests.
func read(in io.Reader) (table results, log string, err error) {
	table = make(results)
	outputs := make(map[string]string)
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return table, log, nil
		} else if err != nil {
			return nil, "", fmt.Errorf("read the lines of go test -json: %w", err)
		}
		switch e.Action {
		case "output":
			outputs[e.Test] += e.Output
			continue
		case "fail":
			log += outputs[e.Test]
		}
		name, store, ok := split(e.Test)
		if !ok {
			continue
		}
		if table[name] == nil {
			table[name] = make(map[string]*result)
		}
		if table[name][store] == nil {
			table[name][store] = new(result)
		}
		table[name][store].add(e, outputs[e.Test])
	}
}

// split returns the test and the store of a subtest that ran on a store.
func split(test string) (name, store string, ok bool) {
	parts := strings.Split(test, "/")
	at := slices.IndexFunc(parts, func(part string) bool { return slices.Contains(stores, part) })
	if at < 0 {
		return "", "", false
	}
	return parts[0], parts[at], true
}

func (r *result) add(e event, output string) {
	switch e.Action {
	case "pass":
		r.passed = true
	case "fail":
		r.failed = true
	case "skip":
		_, need, found := strings.Cut(strings.ReplaceAll(output, "\n", " "), " has no ")
		need, _, _ = strings.Cut(need, " ---")
		if !found {
			need = strings.TrimSpace(output)
		}
		r.needs = append(r.needs, strings.TrimSpace(need))
	}
}

// print prints a row for each test, and how many tests passed on each store.
func (r results) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.Debug|tabwriter.TabIndent)
	row := func(cells ...string) { fmt.Fprintf(w, "| %s\t\n", strings.Join(cells, "\t ")) }
	row(append([]string{"test"}, stores...)...)
	row(slices.Repeat([]string{"---"}, len(stores)+1)...)
	passed := make(map[string]int)
	for _, name := range names(r) {
		cells := []string{name}
		for _, store := range stores {
			of := result{}
			if r[name][store] != nil {
				of = *r[name][store]
			}
			if of.passed && !of.failed {
				passed[store]++
			}
			cells = append(cells, of.String())
		}
		row(cells...)
	}
	total := []string{fmt.Sprintf("%d tests", len(r))}
	for _, store := range stores {
		total = append(total, fmt.Sprintf("%d passed", passed[store]))
	}
	row(total...)
	return w.Flush()
}

func names(r results) (list []string) {
	for name := range r {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
