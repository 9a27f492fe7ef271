package postgres_test

import (
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/tests/kit"
)

// An event that another program has inserted has a body that the server cannot print. One projection meets it live, another when it
// catches up. Both park it without calling their handlers, and apply all others.
func TestEventThatCannotBeReadIsParked(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	rt := b.Running(kit.Quick, b.Recorders("live", "behind")...)
	b.Append("first", 3)
	b.MustCatchUp(rt, "live", "behind")
	b.Pause(rt, "behind")
	unreadable := pgtest.MakeUnreadable(t, b.Store.(kit.PgStore).Pool(), 5, 5, "54000")
	unreadable.Insert("second", 1, "counted")
	unreadable.Insert("second", 2, "counted")
	unreadable.Insert("third", 1, "counted")
	b.Resume(rt, "behind")
	for _, name := range []string{"live", "behind"} {
		b.Reaches(rt, name, 6)
		letters := b.DeadLettersOf(name)
		if len(letters) != 1 || letters[0].Position != 5 || !strings.Contains(letters[0].Error, "the text is too long") {
			t.Errorf("dead letters of %s: %+v", name, letters)
		}
	}
	unreadable.Repair()
	for _, name := range []string{"live", "behind"} {
		b.Verify(name, 5)
	}
}
