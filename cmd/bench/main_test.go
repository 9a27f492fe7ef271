package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func TestBadInputIsOneClearLine(t *testing.T) {
	// The database does not exist, but the flags are checked first.
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/x")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-only", "nonsense"}, `-only must be latency, catchup, append, fairness or embedded: "nonsense"`},
		{[]string{"-rounds", "0"}, "-rounds must be at least 1: 0"},
		{[]string{"-probes", "0"}, "-probes must be at least 1: 0"},
		{[]string{"-events=-1"}, "-events must be at least 1: -1"},
		{[]string{"-writers", "0"}, "-writers must be from 1 to 1000: 0"},
		{[]string{"-writers", "1001"}, "from 1 to 1000: 1001"},
		{[]string{"-append-time", "0s"}, "-append-time must be above 0: 0s"},
		{[]string{"-evnts", "1"}, "unknown flag: --evnts"},
		{[]string{"latency"}, `unknown command "latency"`},
		{[]string{"-rounds", "1", "--", "x"}, `"x"`},
		{[]string{"-database-url", "nonsense"}, "connect to the database"},
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

func TestHelpExplainsEveryMeasurement(t *testing.T) {
	for _, flag := range []string{"-help", "--help", "-h"} {
		var out, errs bytes.Buffer
		if status := execute([]string{flag}, &out, &errs); status != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit status %d, %q", flag, status, errs.String())
		}
		for _, m := range measurements {
			if !strings.Contains(out.String(), "\n"+m.name+" ") {
				t.Errorf("%s does not explain %s", flag, m.name)
			}
		}
	}
}
