package session

import (
	"strings"
	"testing"
)

func TestSessionIsRestoredAsLoginRoleBeforeItIsLowered(t *testing.T) {
	r := restoreTo([]setting{
		{name: "work_mem", value: "1MB", user: "app", role: "it's", pid: 7},
		{name: "a.b", value: "", user: "app", role: "it's", pid: 7},
	})
	order := []string{"reset session authorization", "reset all", "'work_mem', '1MB', false", "'a.b', '', false",
		"set session session authorization 'app'", "set session role 'it''s'", "unlisten *", "close all",
		"discard temp", "pg_advisory_unlock_all()"}
	rest := r.Session
	for _, part := range order {
		at := strings.Index(rest, part)
		if at < 0 {
			t.Fatalf("%q is missing, or comes too early, in %s", part, r.Session)
		}
		rest = rest[at:]
	}
	if want := "set local session authorization 'app'; set local role 'it''s'"; r.User != want || r.PID != 7 {
		t.Errorf("got %q of process %d, want %q", r.User, r.PID, want)
	}
}

func TestSettingThatWasSeenInOneSessionIsReadInAll(t *testing.T) {
	var p Pooled
	if strings.Contains(p.query(), "work_mem") {
		t.Error("a setting is read before it was seen")
	}
	p.learn([]setting{{name: "work_mem", pid: 7}, {name: "TimeZone", pid: 7}, {pid: 8}})
	if query := p.query(); !strings.Contains(query, "work_mem") || strings.Count(query, "TimeZone") != 1 {
		t.Errorf("read: %s", query)
	}
	if !p.knows(7) || !p.knows(8) || p.knows(9) {
		t.Error("other sessions are known than were seen")
	}
	for pid := range uint32(mostSessions) {
		p.learn([]setting{{pid: 100 + pid}})
	}
	if len(p.known) > mostSessions {
		t.Errorf("%d sessions are remembered", len(p.known))
	}
}
