package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/millrace-go/millrace/event"
)

func TestWaitsForTheWriterAreCounted(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	nothing := func(context.Context, *sql.Tx) error { return nil }
	before := store.port().ConnectionWaits()
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	noError(t, store.InTx(ctx, nothing))
	if now := store.port().ConnectionWaits(); now != before {
		t.Errorf("a free writer: %+v, before %+v", now, before)
	}
	noError(t, store.writer.take(ctx))
	done := make(chan error, 2)
	go func() {
		_, err := store.Append(ctx, "s", event.Any, someEvents(1)...)
		done <- err
	}()
	until(t, "the append waits", func() bool { return store.waitingAppends() == 1 })
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := store.InTx(cancelled, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := store.Append(cancelled, "s", event.Any, someEvents(1)...); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	store.writer.give()
	noError(t, <-done)
	waits := store.port().ConnectionWaits()
	waits.Count, waits.GivenUp = waits.Count-before.Count, waits.GivenUp-before.GivenUp
	if waits.Count != 1 || waits.Duration <= before.Duration || waits.GivenUp != 2 {
		t.Errorf("%+v, before %+v", waits, before)
	}
}
