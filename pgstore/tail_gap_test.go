package pgstore

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
)

// quietStore is a store that sends no wake-ups: a mark that moves does so by looking.
func quietStore(t *testing.T) *Store {
	t.Helper()
	return migrated(t, openStore(t, pgtest.Database(t), Options{NoNotify: true}))
}

// promptly is how many looks a gap may take that nobody holds open: the one that finds it, one before its few
// milliseconds of grace are over, the one that finds nobody, and some to spare.
const promptly = 8

func TestRolledBackPositionIsPassedOverPromptly(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := follow(t, store, store.Name())
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(2)...)
	f.untilMark(t, 2)
	f.got(t, 1, 2)

	tx := openTx(t, store)
	appendIn(t, tx, store.Tenant, "b", 3)
	rollback(t, tx)
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	f.polls = 0
	f.untilMark(t, 6)
	f.got(t, 6)
	if f.polls > promptly {
		t.Errorf("it took %d looks", f.polls)
	}
	// Nothing is visible beyond these, so the mark stays.
	tx = openTx(t, store)
	appendIn(t, tx, store.Tenant, "b", 3)
	rollback(t, tx)
	for range 3 {
		if u, err := f.poll(testContext(t)); err != nil || u.Mark != 6 || u.More || u.Again != 0 || u.Held != nil {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

func TestRollbackToSavepointIsPassedOver(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := follow(t, store, store.Name())
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	f.untilMark(t, 1)
	tx := openTx(t, store)
	appendIn(t, tx, store.Tenant, "b", 1) // 2
	execIn(t, tx, "savepoint s")
	appendIn(t, tx, store.Tenant, "b", 2) // 3, 4
	execIn(t, tx, "rollback to savepoint s")
	appendIn(t, tx, store.Tenant, "b", 1) // 5
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 1); !slices.Equal(held.Holders, []string{backend(tx)}) || held.Below != 6 {
		t.Errorf("%+v", held)
	}
	commit(t, tx)
	f.untilMark(t, 6)
	f.got(t, 1, 2, 5, 6)
}

// The lock goes with the savepoint in which it was taken, so the transaction need not end.
func TestSavepointThatRolledBackHoldsNothing(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := follow(t, store, store.Name())
	tx := openTx(t, store)
	execIn(t, tx, "create table unrelated (n int)")
	execIn(t, tx, "savepoint s")
	appendIn(t, tx, store.Tenant, "b", 2)
	execIn(t, tx, "rollback to savepoint s")
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	f.untilMark(t, 3)
}

func TestOpenAppendIsWaitedForAndNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*testing.T, pgx.Tx)
		want []int64
	}{
		"commit":   {commit, []int64{1, 2, 3, 4, 5}},
		"rollback": {rollback, []int64{1, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			store := quietStore(t)
			f := follow(t, store, store.Name())
			mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
			f.untilMark(t, 1)
			tx := openTx(t, store)
			appendIn(t, tx, store.Tenant, "b", 2)
			mustAppend(t, store.Tenant, "a", event.Any, someEvents(2)...)
			held := f.untilHeld(t, 1)
			if held.Below != 5 || !slices.Equal(held.Holders, []string{backend(tx)}) {
				t.Errorf("%+v, want below 5 by %s", held, backend(tx))
			}
			if again := f.untilHeld(t, 1); !again.Since.Equal(held.Since) {
				t.Errorf("held since %v, and then since %v", held.Since, again.Since)
			}
			test.end(t, tx)
			f.untilMark(t, 5)
			f.got(t, test.want...)
			if u, err := f.poll(testContext(t)); err != nil || u.Held != nil || u.Again != 0 {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// Whoever began to append after the gap was seen is not waited for, however long it takes.
func TestLaterAppendDoesNotHoldAnEarlierGap(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := follow(t, store, store.Name())
	early := openTx(t, store)
	appendIn(t, early, store.Tenant, "early", 1) // 1
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	f.untilHeld(t, 0)
	late := openTx(t, store)
	appendIn(t, late, store.Tenant, "late", 1) // 3
	commit(t, early)
	f.untilMark(t, 2)
	f.got(t, 1, 2)
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 2); !slices.Equal(held.Holders, []string{backend(late)}) || held.Below != 4 {
		t.Errorf("%+v, want %s below 4", held, backend(late))
	}
	commit(t, late)
	f.untilMark(t, 4)
	f.got(t, 3, 4)
}

func TestUnrelatedTransactionsDoNotHoldTheMark(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	other := newTenant(t, store, "other")
	g := follow(t, store, other.Name())
	mustExec(t, store, "create table unrelated (n int)")
	writer := openTx(t, store)
	execIn(t, writer, "insert into unrelated values (1)")
	execIn(t, writer, "insert into millrace_default.streams values ('mine', 1)")
	reader := openTx(t, store)
	execIn(t, reader, "select count(*) from millrace_default.events")
	execIn(t, reader, "lock table millrace_default.events in row share mode")
	neighbour := openTx(t, store)
	appendIn(t, neighbour, other, "a", 1)
	mustAppend(t, other, "b", event.Any, someEvents(1)...)

	f := follow(t, store, store.Name())
	for i := range int64(5) {
		tx := openTx(t, store)
		appendIn(t, tx, store.Tenant, "gap", 1)
		rollback(t, tx)
		mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
		f.polls = 0
		f.untilMark(t, 2*i+2)
		if f.polls > promptly {
			t.Errorf("it took %d looks", f.polls)
		}
	}
	g.untilHeld(t, 0)
	commit(t, neighbour)
	g.untilMark(t, 2)
	g.got(t, 1, 2)
}

// A tail that begins does not read what was there before, also where somebody appends just then.
func TestTailBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(3000)...)
	gap := openTx(t, store)
	appendIn(t, gap, store.Tenant, "b", 1) // 3001
	rollback(t, gap)
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	f := &follower{tail: store.port().Tail(store.Name())}
	if u, err := f.poll(testContext(t)); err != nil || u.Mark != 3002 || u.From != 3002 || len(u.Events) > 0 || u.More {
		t.Errorf("begins from %d at %d with %d events, %v", u.From, u.Mark, len(u.Events), err)
	}

	open := openTx(t, store)
	appendIn(t, open, store.Tenant, "b", 1) // 3003
	mustAppend(t, store.Tenant, "a", event.Any, someEvents(1)...)
	late := &follower{tail: store.port().Tail(store.Name())}
	late.until(t, "it is held", func(u engine.TailUpdate) bool { return u.Held != nil })
	if late.mark >= 3003 {
		t.Errorf("the mark is %d", late.mark)
	}
	before := len(late.positions)
	commit(t, open)
	u := late.until(t, "it is not held", func(u engine.TailUpdate) bool { return u.Held == nil })
	if u.Mark != 3004 || u.From != 3004 || len(late.positions) != before {
		t.Errorf("goes on from %d at %d with %d events", u.From, u.Mark, len(late.positions)-before)
	}
	f.untilMark(t, 3004)
	f.got(t, 3003, 3004)
}
