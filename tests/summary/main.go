// Command summary runs "go test" with its arguments and prints what "go test" prints. After failures it names the
// failed tests at the end, each with the begin of its output. Its exit status is that of "go test".
//
//	go run ./tests/summary -race ./...
//
// "--" begins the arguments of another "go test". The others run one after another, while the first one runs:
//
//	go run ./tests/summary -race ./... -- -C examples -race ./... -- -C cmd/bench -race ./...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-go/millrace/internal/excerpt"
)

const (
	// mostLines and longestLine limit the output of each test at the end. All of it stands above.
	mostLines   = 12
	longestLine = 300
)

func main() {
	runs := split(os.Args[1:])
	s := newSummary(os.Stdout)
	others := make(chan error)
	go func() {
		var err error
		for _, args := range runs[1:] {
			err = errors.Join(err, s.test(args))
		}
		others <- err
	}()
	err := errors.Join(s.test(runs[0]), <-others)
	s.print(os.Stdout)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// split returns the arguments of each run.
func split(args []string) (runs [][]string) {
	for {
		at := slices.Index(args, "--")
		if at < 0 {
			return append(runs, args)
		}
		runs, args = append(runs, args[:at]), args[at+1:]
	}
}

// command returns "go test -json" with these arguments. It accepts -C as the first one only.
func command(args []string) []string {
	before := 0
	if len(args) >= 2 && args[0] == "-C" {
		before = 2
	}
	return slices.Concat([]string{"test"}, args[:before], []string{"-json"}, args[before:])
}

// test runs "go test".
func (s *summary) test(args []string) error {
	cmd := exec.Command("go", command(args)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(s.read(out), cmd.Wait())
}

// event is a line of "go test -json".
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// key names a test. Without a test it is the package.
type key struct{ pkg, test string }

// summary gathers the failures of all runs.
type summary struct {
	mu      sync.Mutex // held while a line is added
	out     io.Writer
	failed  []key
	outputs map[key]string // of tests that have not passed
	order   []key          // of the outputs
}

// newSummary returns a summary that prints what "go test" prints without -v: the output of failed tests, and a line for
// each package.
func newSummary(out io.Writer) *summary { return &summary{out: out, outputs: make(map[key]string)} }

// read reads the output of a run.
func (s *summary) read(in io.Reader) error {
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the lines of go test -json: %w", err)
		}
		s.add(e, s.out)
	}
}

func (s *summary) add(e event, out io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
		s.write(key{pkg: e.ImportPath}, e.Output)
	case "build-fail":
		s.failed = append(s.failed, key{pkg: e.ImportPath})
	case "output":
		s.write(of, e.Output)
	case "pass", "skip":
		if e.Test == "" {
			fmt.Fprint(out, lastLine(s.outputs[of]))
		}
		delete(s.outputs, of)
	case "fail":
		s.failed = append(s.failed, of)
		if e.Test == "" {
			s.endPackage(e.Package, out)
		}
	}
}

// write keeps output, except for the lines that only -v prints.
func (s *summary) write(of key, output string) {
	for _, verbose := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(output, verbose) {
			return
		}
	}
	if _, known := s.outputs[of]; !known {
		s.order = append(s.order, of)
	}
	s.outputs[of] += output
}

// endPackage prints the outputs of the tests of a package that have failed or not ended, and then that of the package.
func (s *summary) endPackage(pkg string, out io.Writer) {
	for _, of := range s.order {
		if output, kept := s.outputs[of]; kept && of.pkg == pkg && of.test != "" {
			fmt.Fprint(out, output)
			if !slices.Contains(s.failed, of) {
				s.failed = append(s.failed, of)
			}
		}
	}
	fmt.Fprint(out, s.outputs[key{pkg: pkg}])
}

// print names the failed tests, and the packages that failed without one.
func (s *summary) print(out io.Writer) {
	for _, of := range s.failed {
		if s.hasInner(of) {
			continue
		}
		fmt.Fprintln(out, "\nFAILED: "+strings.TrimSpace(of.pkg+" "+of.test))
		lines := strings.Split(strings.TrimSpace(s.outputs[of]), "\n")
		for _, line := range lines[:min(len(lines), mostLines)] {
			fmt.Fprintln(out, "    "+excerpt.UpTo(strings.TrimSpace(line), longestLine))
		}
		if more := len(lines) - mostLines; more > 0 {
			fmt.Fprintf(out, "    (%d more lines above)\n", more)
		}
	}
}

// hasInner reports whether a test of this package, or a subtest of this test, has failed too.
func (s *summary) hasInner(of key) bool {
	return slices.ContainsFunc(s.failed, func(inner key) bool {
		return inner.pkg == of.pkg && inner.test != of.test &&
			(of.test == "" || strings.HasPrefix(inner.test, of.test+"/"))
	})
}

func lastLine(output string) string {
	output = strings.TrimSuffix(output, "\n")
	return output[strings.LastIndexByte(output, '\n')+1:] + "\n"
}
