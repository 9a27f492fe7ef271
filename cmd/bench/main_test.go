package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

// TestMain also runs the processes that a scenario starts: they are the same executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeCommand {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	testmain.Run(m)
}

func TestBadInputIsOneClearLine(t *testing.T) {
	// The database does not exist, but the flags are checked first.
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/x")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-scenario", "nonsense"}, `-scenario must be among append, aggregate, catchup, `},
		{[]string{"-scenario", "append,nonsense"}, `: "nonsense"`},
		{[]string{"-rounds", "0"}, "-rounds must be at least 1: 0"},
		{[]string{"-events=-1"}, "-events must be at least 1: -1"},
		{[]string{"-projections", "0"}, "-projections must be a multiple of 10 and at least 10: 0"},
		{[]string{"-projections", "25"}, "-projections must be a multiple of 10 and at least 10: 25"},
		{[]string{"-json", "-write", "x.md"}, "-write needs tables: leave out -json"},
		{[]string{"-write", "/does/not/exist.md"}, "/does/not/exist.md"},
		{[]string{"-round-trip=-1s"}, "-round-trip must not be negative: -1s"},
		{[]string{"-round-trip=1ms"}, "-round-trip is for scenarios with a server"},
		{[]string{"-scenario=append", "-round-trip=1ms", "-database-url=host=a,b"}, "-round-trip supports one host"},
		{[]string{"-evnts", "1"}, "unknown flag: --evnts"},
		{[]string{"latency"}, `unknown command "latency"`},
		{[]string{"-database-url", "nonsense"}, "connect to the server"},
		{nil, "connect"},
	} {
		var out, errs bytes.Buffer
		if status := execute(test.args, &out, &errs); status != 1 {
			t.Errorf("%q: exit status %d, want 1", test.args, status)
		}
		if said := errs.String(); !strings.Contains(said, test.says) || strings.Count(said, "\n") != 1 {
			t.Errorf("%q printed %q, want one line with %q", test.args, said, test.says)
		}
		if out.Len() > 0 {
			t.Errorf("%q prints %q", test.args, out.String())
		}
	}
}

func TestHelpExplainsEveryScenario(t *testing.T) {
	for _, flag := range []string{"-help", "--help", "-h"} {
		var out, errs bytes.Buffer
		if status := execute([]string{flag}, &out, &errs); status != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit status %d, %q", flag, status, errs.String())
		}
		for _, s := range scenarios {
			if !strings.Contains(out.String(), "\n"+s.name+"\n    ") {
				t.Errorf("%s does not explain %s", flag, s.name)
			}
		}
	}
}

func TestParagraphsAreWrapped(t *testing.T) {
	if got, want := wrap("one  two\n\t\tthree four", 9), "one two\nthree\nfour\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProfilesAreWritten(t *testing.T) {
	folder := t.TempDir()
	o := options{cpuProfile: filepath.Join(folder, "cpu"), memProfile: filepath.Join(folder, "mem")}
	reason := errors.New("broken")
	if err := profiled(o, func() error { return reason }); !errors.Is(err, reason) {
		t.Errorf("got %v, want the error of the run", err)
	}
	for _, path := range []string{o.cpuProfile, o.memProfile} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}
