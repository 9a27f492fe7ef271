package postgres_test

import (
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/tests/kit"
)

// The bodies of events that a projection has yet to read cannot be read, with an SQLSTATE that is taken for an outage,
// while newer ones can. Within a minute, status, summary and health say so.
func TestReadsThatKeepFailingAreFound(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	rt := b.Running(kit.Quick, b.Recorders("p", "q")...)
	b.Append("s", 3)
	b.MustCatchUp(rt, "p", "q")
	b.Pause(rt, "p")
	b.Append("s", 5000) // more than the feed keeps
	b.MustCatchUp(rt, "q")
	pgtest.MakeUnreadable(t, b.Store.(kit.PgStore).Pool(), 4, 100, "53400")
	b.Must(rt.Admin.Resume(b.Ctx, millrace.ProjectionID{Name: "p"}))
	b.Patient().Eventually("the failed reads are a finding", func() bool {
		for _, f := range b.Summary(rt).Findings() {
			if f.Check == "standstill" && strings.Contains(f.Problem, "default/p") &&
				strings.Contains(f.Problem, "53400") {
				return true
			}
		}
		return false
	})
	for range 20 { // between the attempts, too
		if s := b.Status(rt, "p"); s.State != admin.StateWaiting || !strings.Contains(s.Reason, "53400") {
			t.Errorf("the status is %s, %q", s.State, s.Reason)
		}
	}
	another := b.Another(kit.Quick) // not on the node that runs it
	if s := b.Status(another, "p"); s.State != admin.StateWaiting || !strings.Contains(s.Reason, "53400") {
		t.Errorf("another process shows %s, %q", s.State, s.Reason)
	}
	if h := rt.Health(b.Ctx); !h.Ready ||
		!strings.Contains(strings.Join(h.DegradedBy, ""), "although events wait: 1, the first default/p") {
		t.Errorf("%+v", h)
	}
	if s := b.Status(rt, "q"); s.State != admin.StateLive || s.Reason != "" {
		t.Errorf("the other projection is %s, %q", s.State, s.Reason)
	}
}
