// Command summary runs "go test" with its arguments and prints what "go test" prints. After failures it names the failed tests at
// the end, each with the begin of its output. Its exit status is that of "go test".
//
//	go run ./tests/summary -race ./...
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

	"github.com/millrace-go/millrace/internal/excerpt"
)

const (
	// mostLines and longestLine limit the output of each test at the end. All of it stands above.
	mostLines   = 12
	longestLine = 300
)

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	s, err := summarize(out, os.Stdout)
	err = errors.Join(err, cmd.Wait())
	s.print(os.Stdout)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// event is a line of "go test -json".
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// key names a test. Without a test it is the package.
type key struct{ pkg, test string }

// summary gathers the failures of a run.
type summary struct {
	failed  []key
	outputs map[key]string // of tests that have not passed
	order   []key          // of the outputs
}

// summarize copies the output as "go test" prints it without -v: that of failed tests, and a line for each package.
func summarize(in io.Reader, out io.Writer) (*summary, error) {
	s := &summary{outputs: make(map[key]string)}
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return s, fmt.Errorf("read the lines of go test -json: %w", err)
		}
		s.add(e, out)
	}
}

func (s *summary) add(e event, out io.Writer) {
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
		if s.failed = append(s.failed, of); e.Test == "" {
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
		return inner.pkg == of.pkg && inner.test != of.test && (of.test == "" || strings.HasPrefix(inner.test, of.test+"/"))
	})
}

func lastLine(output string) string {
	output = strings.TrimSuffix(output, "\n")
	return output[strings.LastIndexByte(output, '\n')+1:] + "\n"
}
