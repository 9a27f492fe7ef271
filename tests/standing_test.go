package tests_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/tests/kit"
)

// Another program keeps the lock of a file, so no batch begins. Within a minute status, summary and health say so.
func TestBatchesThatNeverBeginAreFound(t *testing.T) {
	t.Parallel()
	b := kit.SQLite.New(t)
	b.Append("s", 2000)
	rt := b.Running(kit.Quick, millrace.Projection{Name: "p", MaxEvents: 1, Handler: b.Store.Batch(kit.Record("p"))})
	b.Eventually("it has begun", func() bool { return b.Status(rt, "p").Position > 0 })
	other, err := sql.Open("sqlite", "file:"+b.Place+"?_txlock=immediate&_pragma=busy_timeout(100000)")
	b.Must(err)
	defer func() { b.Must(other.Close()) }()
	tx, err := other.BeginTx(b.Ctx, nil)
	b.Must(err)
	if s := b.Status(rt, "p"); s.Position >= 2000 {
		t.Fatal("it had handled all events before the file was locked")
	}
	const reason = "while another process writes: database is locked"
	b.Patient().Eventually("the standstill is a finding", func() bool {
		for _, f := range b.Summary(rt).Findings() {
			if f.Check == "standstill" && strings.Contains(f.Problem, "default/p") &&
				strings.Contains(f.Problem, reason) {
				return true
			}
		}
		return false
	})
	if s := b.Status(rt, "p"); s.State != admin.StateWaiting || !strings.Contains(s.Reason, reason) {
		t.Errorf("the status is %s, %q", s.State, s.Reason)
	}
	if h := rt.Health(b.Ctx); !h.Live ||
		!strings.Contains(strings.Join(h.DegradedBy, ""), "although events wait: 1, the first default/p") {
		t.Errorf("%+v", h)
	}
	b.Must(tx.Rollback())
	b.Patient().Eventually("it goes on", func() bool { return len(b.Summary(rt).Findings()) == 0 })
	b.Reaches(rt, "p", 2000)
	if letters := b.DeadLettersOf("p"); len(letters) != 0 {
		t.Errorf("parked: %+v", letters)
	}
}
