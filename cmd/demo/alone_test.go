package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// startAlone starts a demo on a machine with nothing but the program itself: no server binaries, and no other programs.
func startAlone(t *testing.T, args ...string) (p *process, temporary string) {
	t.Helper()
	temporary = t.TempDir()
	return startIn(t, []string{asDemo + "=" + withoutPostgres, "TMPDIR=" + temporary}, args...), temporary
}

func TestDemoNeedsNothingButItself(t *testing.T) {
	t.Parallel()
	log, want := realLog(t)
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"generated":     {[]string{"-events", "3000"}, "verified: every event was applied exactly once\n"},
		"poison":        {[]string{"-events", "1000", "-poison", "8"}, "verified: every event was applied exactly once, except the 8 that are parked\n"},
		"skipped":       {[]string{"-events", "1000", "-poison", "8", "-on-error", "skip"}, "except the 8 that were skipped\n"},
		"parked stream": {[]string{"-events", "1000", "-poison", "8", "-on-error", "park-stream", "-replay"}, "by a replay, each stream in order\n"},
		"real log":      {[]string{"-input", log}, "verified: every event was applied exactly once\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "real log" && want == nil {
				t.Skip("the real log is not there")
			}
			demo, temporary := startAlone(t, append(test.args, "-json")...)
			demo.awaitExit(0)
			output := demo.output()
			for _, says := range []string{"on SQLite 3.", "it is removed at the end\n", "-postgres runs it on a private PostgreSQL server", test.says} {
				if !strings.Contains(output, says) {
					t.Errorf("it does not print %q", says)
				}
			}
			var s summary
			lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || !s.Verified || s.Store != "sqlite" {
				t.Errorf("the last line is %q: %v", lines[len(lines)-1], err)
			}
			if name == "real log" && s.Events != want.Events {
				t.Errorf("%d events, want %d", s.Events, want.Events)
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
		if said := demo.output(); !strings.Contains(said, "no PostgreSQL server binaries found: install them (apt-get install postgresql, ") ||
			strings.Count(said, "\n") != 1 {
			t.Errorf("%s: it says %q, want one line that says what to install", args, said)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", args, left, err)
		}
	}
}
