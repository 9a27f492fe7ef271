package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// An event that another program has inserted has a body that the server cannot print. One projection meets it live,
// another when it catches up. Both park it without calling their handlers, and apply all others.
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
		if len(letters) != 1 || letters[0].Position != 5 ||
			!strings.Contains(letters[0].Error, "the text is too long") {
			t.Errorf("dead letters of %s: %+v", name, letters)
		}
	}
	replayUnreadable(b, "live")
	unreadable.Repair()
	for _, name := range []string{"live", "behind"} {
		b.Verify(name, 5)
	}
}

// A rebuild parks what it cannot read, applies the other events, and ends.
func TestRebuildParksAnEventThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	p := b.Rebuildable("p")
	p.OnFailure = projection.ActionPark
	rt := b.Running(kit.Quick, p)
	b.Append("s", 5)
	b.MustCatchUp(rt, "p")
	unreadable := pgtest.MakeUnreadable(t, b.Store.(kit.PgStore).Pool(), 3, 3, "54000")
	for range 2 {
		b.Must(rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{}))
		b.Reaches(rt, "p", 5)
		if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Position != 3 {
			t.Errorf("parked are %+v", letters)
		}
	}
	unreadable.Repair()
	b.Verify("p", 3)
	if result := <-b.Replaying("p"); result.Done != 1 {
		t.Errorf("replayed: %+v", result)
	}
	if applied := b.Positions("p"); len(applied) != 5 {
		t.Errorf("applied are %v", applied)
	}
}

// replayUnreadable replays, shows and lists a dead letter whose event cannot be read.
func replayUnreadable(b *kit.Bundle, name string) {
	b.T.Helper()
	letters := b.Store.DeadLetters(millrace.ProjectionID{Name: name})
	result, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 10)
	if err != nil || result.Done != 0 || result.Failed != 1 {
		b.T.Errorf("replayed: %+v, %v", result, err)
	}
	listed := b.DeadLettersOf(name)
	if len(listed) != 1 || listed[0].State != projection.DeadLetterParked || listed[0].Replays != 1 {
		b.T.Fatalf("listed: %+v", listed)
	}
	var unreadable *event.UnreadableError
	letter, e, err := letters.Get(b.Ctx, listed[0].ID)
	if !errors.As(err, &unreadable) || unreadable.Position != 5 || letter.ID != listed[0].ID || e.Position != 5 ||
		e.Body != nil || e.Time.IsZero() {
		b.T.Errorf("got %+v, %+v, %v", letter, e, err)
	}
}
