package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// The owner may only be frozen: it must not commit when it goes on.
func TestPauseTakesTheLeaseOfADeadOwnerAway(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Idle(b.Recorders("p")...)

	const dead = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + dead + `', '{p}', '{}', 1, now() - interval '1 second')`)
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 7")
	id := millrace.ProjectionID{Name: "p"}
	b.Pause(rt, "p")
	if p := b.Status(rt, "p"); p.State != millrace.StatePaused || p.Owner != "" || p.Epoch != 8 {
		t.Errorf("%+v", p)
	}
	// What lives is left alone.
	b.exec("update millrace.nodes set expires_at = now() + interval '1 hour'")
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 9")
	short, cancel := context.WithTimeout(b.Ctx, 200*time.Millisecond)
	defer cancel()
	if err := rt.Pause(short, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pause of what a living node owns: %v", err)
	}
	if p := b.Status(rt, "p"); p.Owner != dead || p.Epoch != 9 {
		t.Errorf("%+v", p)
	}
}
