package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// aloneFolder is the folder of the program that buildAlone builds.
var aloneFolder string

// buildAlone builds the demo as "go run" does, except that it does not find the server binaries of PostgreSQL.
var buildAlone = sync.OnceValues(func() (program string, err error) {
	aloneFolder, err = os.MkdirTemp("", "millrace-alone-")
	if err != nil {
		return "", err
	}
	program = filepath.Join(aloneFolder, "demo")
	return program, build(".", program, "-ldflags=-X github.com/millrace-go/millrace/internal/pgtest.hidden=yes")
})

// startAlone starts a demo on a machine with nothing but the program itself: no server binaries, and no other programs.
func startAlone(t *testing.T, args ...string) (p *process, temporary string) {
	t.Helper()
	program, err := buildAlone()
	if err != nil {
		t.Fatal(err)
	}
	temporary = t.TempDir()
	return startProgram(t, program, []string{"TMPDIR=" + temporary}, args...), temporary
}

// summary returns the last line of a demo that has ended, whose flags include -json.
func (p *process) summary() (s summary) {
	p.t.Helper()
	lines := strings.Split(strings.TrimSuffix(p.output(), "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		p.t.Fatalf("the last line is %q: %v", lines[len(lines)-1], err)
	}
	return s
}

func TestDemoNeedsNothingButItself(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"generated": {[]string{"-events", "3000"}, "verified: every event was applied exactly once\n"},
		"poison":    {[]string{"-events", "1000", "-poison", "8"}, "parks it and the later events of its stream\n"},
		"parked alone": {
			[]string{"-events", "1000", "-poison", "8", "-on-error", "park"},
			"verified: every event was applied exactly once, except the 8 that are parked\n",
		},
		"skipped": {
			[]string{"-events", "1000", "-poison", "8", "-on-error", "skip"}, "except the 8 that were skipped\n",
		},
		"parked stream": {
			[]string{"-events", "1000", "-poison", "8", "-on-error", "park-stream", "-replay"},
			"by a replay, each stream in order\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demo, temporary := startAlone(t, append(test.args, "-json")...)
			demo.awaitExit(0)
			output := demo.output()
			for _, says := range []string{"on SQLite 3.", "it is removed at the end\n",
				"-postgres runs it on a private PostgreSQL server", test.says} {
				if !strings.Contains(output, says) {
					t.Errorf("it does not print %q", says)
				}
			}
			if s := demo.summary(); !s.Verified || s.Store != "sqlite" {
				t.Errorf("the summary is %+v", s)
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

func TestPostgresFlagNeedsServerBinaries(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-postgres"}, {"serve", "-port", "0"}} {
		demo, temporary := startAlone(t, args...)
		demo.awaitExit(1)
		if said := demo.output(); !strings.Contains(said,
			"no PostgreSQL server binaries found: install them (apt-get install postgresql, ") ||
			strings.Count(said, "\n") != 1 {
			t.Errorf("%s: it says %q, want one line that says what to install", args, said)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", args, left, err)
		}
	}
}
