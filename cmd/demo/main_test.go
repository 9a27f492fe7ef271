package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBadFlagsAreOneClearLine(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-events", "0"}, "-events must be at least 1: 0"},
		{[]string{"-events", "3", "-input", "x"}, "exclude each other"},
		{[]string{"-writers", "0"}, "-writers must be from 1 to 1000: 0"},
		{[]string{"-rate", "-1"}, "-rate must not be negative"},
		{[]string{"-poison=-1"}, "-poison must not be negative"},
		{[]string{"-events", "10", "-poison", "11"}, "there are only 10 events"},
		{
			[]string{"-poison", "1", "-on-error", "ignore"},
			`-on-error must be park-stream, park, skip or stop: "ignore"`,
		},
		{[]string{"-on-error", "stop"}, "-on-error stop needs -poison"},
		{[]string{"-replay"}, "-replay needs -poison"},
		{[]string{"-poison", "1", "-on-error", "skip", "-replay"}, "-replay and -on-error skip exclude each other"},
		{[]string{"-poison", "1", "-on-error", "stop", "-replay"}, "-replay and -on-error stop exclude each other"},
		{[]string{"-keep"}, "-keep needs -file or -database-url"},
		{[]string{"-file", "x", "-database-url", "y"}, "-file and -database-url exclude each other"},
		{[]string{"-file", "x", "-postgres"}, "-postgres and -file exclude each other"},
		{[]string{"-database-url", "x", "-postgres"}, "-postgres and -database-url exclude each other"},
		{[]string{"-file="}, "-file must not be empty"},
		{[]string{"-file", "no such folder/demo.db"}, "no such folder/demo.db: no such file"},
		{[]string{"-evnts", "1"}, "unknown flag: --evnts"},
		{[]string{"-input", "no such file"}, "no such file"},
		{[]string{"-database-url", "postgres://127.0.0.1:1/x"}, "connect"},
	} {
		var out, errs bytes.Buffer
		if status := execute(test.args, &out, &errs); status != 1 {
			t.Errorf("%q: exit status %d, want 1", test.args, status)
		}
		if said := errs.String(); !strings.Contains(said, test.says) || strings.Count(said, "\n") != 1 {
			t.Errorf("%q says %q, want one line with %q", test.args, said, test.says)
		}
		if out.Len() > 0 {
			t.Errorf("%q prints %q", test.args, out.String())
		}
	}
}
