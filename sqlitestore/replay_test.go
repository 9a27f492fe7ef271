package sqlitestore

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

var allLetters = projection.DeadLetterFilter{All: true}

// A command that calls no handler runs at once if the owner of the lease is dead. The dead owner may be a zombie.
func TestCommandWithoutALivingOwnerFencesZombies(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustExec(t, store, "create table model (at integer primary key autoincrement, position integer not null)")
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	row := ensured(t, store, "p")[0]
	node := newNode("p")
	session := must(store.port().Connect(ctx, node))(t)
	b := &batcher{t: t, store: store, lease: claimAll(t, store, node)[0]}
	park := func() {
		t.Helper()
		e := b.pending(1).Events[0]
		letter := projection.DeadLetter{
			Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type, Error: "bad", Attempts: 1,
		}
		noError(t, store.plane().Park(ctx, b.lease, letter, false))
		b.lease = must(store.port().Leases(ctx, []int32{row}))(t)[0]
	}
	park()
	letters := store.DeadLetters(b.lease.ID)
	// While the owner lives, a command waits for it.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	waiting, err := letters.Discard(short, allLetters, 1)
	if !errors.Is(err, projection.ErrCommandPending) {
		t.Fatalf("the owner lives: %+v, %v", waiting, err)
	}
	if done, err := store.plane().RunIfUnowned(ctx, row, waiting.Command); done || err != nil ||
		stateOf(t, store, row).epoch != b.lease.Epoch {
		t.Fatalf("the owner lives: run %v, %v, %+v", done, err, stateOf(t, store, row))
	}
	park()
	noError(t, session.Close(ctx)) // as if the process had ended
	// Its commands run now, also if another node owns the file, and has not claimed the lease yet.
	if result, err := letters.Wait(ctx, waiting.Command); err != nil || result.Done != 1 {
		t.Errorf("the owner is dead: %+v, %v", result, err)
	}
	connect(t, store, newNode("p"))
	if result, err := letters.Discard(ctx, allLetters, 10); err != nil || result.Done != 1 {
		t.Errorf("another node owns the file: %+v, %v", result, err)
	}
	if err := b.apply(record, limit); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("the batch of the zombie: %v", err)
	}
	if s := stateOf(t, store, row); s.epoch != b.lease.Epoch+2 || s.owner != node.ID {
		t.Errorf("the lease is %+v", s)
	}
	if n := one[int](t, store, "select count(*) from model"); n != 0 {
		t.Errorf("the zombie applied %d events", n)
	}
	if parked := one[int](t, store, "select parked from millrace_projections where id = ?1", row); parked != 0 {
		t.Errorf("%d events are counted as parked", parked)
	}
}

// Discards and ends of replays run in transactions of the store: if a statement fails, nothing of it stays.
func TestDiscardThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 4)
	fillDeadLetters(t, b.store, b.lease.Row, 4, 1)
	mustExec(t, b.store,
		`create trigger millrace_commands_update_closed before update of done on millrace_commands begin select raise(abort, 'no'); end`)
	before := must(texts(b.store,
		"select id || state || blocked_by_stream from millrace_dead_letters union all select stream_id from millrace_parked_streams union all select parked from millrace_projections"))(t)
	command := must(b.store.plane().Insert(testContext(t), b.lease.ID, "discard", allLetters, 10))(t)
	if n, err := b.store.plane().Discard(testContext(t), b.lease, command); err == nil {
		t.Errorf("discarded %d", n)
	}
	after := must(texts(b.store,
		"select id || state || blocked_by_stream from millrace_dead_letters union all select stream_id from millrace_parked_streams union all select parked from millrace_projections"))(t)
	if strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Errorf("it was\n%v\nand is\n%v", before, after)
	}
	mustExec(t, b.store, "drop trigger millrace_commands_update_closed")
	if n, err := b.store.plane().Discard(testContext(t), b.lease, command); n != 4 || err != nil {
		t.Errorf("without the fault: discarded %d, %v", n, err)
	}
}

// fillDeadLetters parks n events of a projection in that many streams, every second of which is parked.
func fillDeadLetters(t testing.TB, store *Store, row int32, n, streams int) {
	t.Helper()
	mustExec(t, store,
		`insert into millrace_dead_letters (projection, position, stream_id, version, type, blocked_by_stream, error, stack, attempts, replays, first_failed_at, last_failed_at)
		with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
		select ?1, i, 's' || (i % ?3), 1 + i / ?3, 'T', i > ?3 and i % 2 = 0, 'bad', '', 1, i % 5, i, i from n`, row, n, streams)
	mustExec(t, store,
		"insert into millrace_parked_streams (projection, stream_id) select distinct projection, stream_id from millrace_dead_letters where projection = ?1 and position % 2 = 0", row)
	mustExec(t, store, "update millrace_projections set parked = ?2 where id = ?1", row, n)
}

// With many dead letters, and after "analyze", the statements of replays still search by their indexes, and read no
// more than they need.
func TestStatementsForManyDeadLettersUseTheirIndexes(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	rows := ensured(t, store, "p", "q", "empty")
	fillDeadLetters(t, store, rows[0], 40_000, 2_000)
	fillDeadLetters(t, store, rows[1], 100, 10)
	mustExec(t, store,
		`insert into millrace_commands (projection, kind, max_events, created_at, ended_at) with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select ?1, 'replay', 1, 1, 1 from n`, rows[0])
	for _, analyzed := range []string{"", "analyze"} {
		if analyzed != "" {
			mustExec(t, store, analyzed)
		}
		for statement, wants := range map[string][]string{
			"count_failed_letters": {"millrace_dead_letters_due (projection=?)"},
			"list_parked_streams":  {"search millrace_parked_streams using primary key (projection=?)"},
			"parked_streams":       {"search s using primary key (projection=? and stream_id=?)"},
			"next_command": {
				"millrace_commands_ended (projection=? and ended_at=?)", "search s using primary key (projection=?)",
			},
			"release_stream_of": {"millrace_dead_letters_stream (projection=? and stream_id=?)"},
			"open_command": {
				"search d using integer primary key", "search c using integer primary key",
				"millrace_commands_root (root=?)",
			},
			"first_of_stream": {"millrace_dead_letters_stream (projection=? and stream_id=?)"},
			"next_dead_letter": {
				"millrace_dead_letters_parked (projection=? and position>? and position<?)",
				"search s using primary key (projection=? and stream_id=?)",
			},
			"discard_dead_letters": {
				"millrace_dead_letters_parked (projection=? and position>? and position<?)", "integer primary key",
			},
			"release_streams": {
				"using primary key (projection=? and stream_id=?)",
				"millrace_dead_letters_stream (projection=? and stream_id=?)",
			},
			"unblock_streams": {
				"millrace_dead_letters_stream (projection=? and stream_id=?)", "using integer primary key",
			},
			"resolve_dead_letter": {"using integer primary key"},
			"due_replays": {
				"millrace_dead_letters_due (projection=? and replays=?)",
				"millrace_dead_letters_stream (projection=? and stream_id=? and position<?)",
			},
			"dead_letters":        {"sqlite_autoindex_millrace_dead_letters_1 (projection=? and position>?)"},
			"dead_letters_newest": {"sqlite_autoindex_millrace_dead_letters_1 (projection=? and position<?)"},
			"dead_letters_of_ids": {"search d using integer primary key"},
			"purge_dead_letters":  {"millrace_dead_letters_ended (projection=? and ended_at<?)"},
			"begin_delivery":      {"using integer primary key"},
			"command_parts":       {"millrace_commands_root (root=?)"},
			"delete_old_commands": {"millrace_commands_ended (projection=? and ended_at<?)"},
		} {
			plan := explain(t, store, queries.Text(statement))
			for _, want := range wants {
				if !strings.Contains(plan, want) {
					t.Errorf("%s, %s: the plan has no %q:\n%s", statement, analyzed, want, plan)
				}
			}
			if !strings.Contains(comment(t, statement), "sort") && strings.Contains(plan, "temp b-tree") {
				t.Errorf("%s, %s: it sorts:\n%s", statement, analyzed, plan)
			}
		}
	}
}

// A replay costs about the same whether few dead letters are parked or many. The bound is wide: a scan would cost some
// 100 times as much.
func TestReplayOfManyDeadLettersCostsAsMuchAsOfFew(t *testing.T) {
	t.Parallel()
	cost := func(parked int) time.Duration {
		b := newBatcher(t, 1)
		fillDeadLetters(t, b.store, b.lease.Row, parked, parked/20)
		mustExec(t, b.store, "delete from millrace_parked_streams")
		command := must(b.store.plane().Insert(testContext(t), b.lease.ID, "replay", allLetters, math.MaxInt))(t)
		steps := make([]time.Duration, 0, 100)
		for range cap(steps) {
			begin := time.Now()
			r := must(b.store.plane().BeginReplay(testContext(t), b.lease, engine.ReplayRequest{Command: command}))(t)
			noError(t, b.store.port().Tx(testContext(t),
				func(tx store.Tx) error { control.Resolve(tx, b.lease.Row, r); return nil }))
			steps = append(steps, time.Since(begin))
		}
		return median(steps)
	}
	few, many := cost(200), cost(40_000)
	t.Logf("a replay takes %v with 200 parked events, %v with 40,000", few, many)
	if many > 15*few {
		t.Errorf("a replay takes %v with 200 parked events, and %v with 40,000", few, many)
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func TestTextsOfFailuresFitWhateverTheyContain(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	ctx := testContext(t)
	e := b.pending(1).Events[0]
	noError(t, b.store.plane().Park(ctx, b.lease,
		projection.DeadLetter{Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type, Error: "x",
			Attempts: 1}, false))
	b.lease.Checkpoint = e.Position
	command := must(b.store.plane().Insert(ctx, b.lease.ID, "replay", allLetters, 10))(t)
	r := must(b.store.plane().BeginReplay(ctx, b.lease, engine.ReplayRequest{Command: command}))(t)
	failed := engine.FailedReplay{
		Replay: *r, Attempt: 2, Err: errors.New("a\x00b\xff after"), Stack: strings.Repeat("s\x00", 100_000),
		Halt: "h\x00alt",
	}
	noError(t, b.store.plane().FailReplay(ctx, b.lease, failed))
	letters := must(b.store.DeadLetters(b.lease.ID).List(ctx,
		projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Error: "after"}}))(t)
	if len(letters) != 1 || letters[0].Error != "a�b� after" || len(letters[0].Stack) > excerpt.MaxStorable ||
		!strings.HasPrefix(letters[0].Stack, "s�s�") {
		t.Errorf("%+v", letters)
	}
	if reason := one[string](t, b.store, "select failed_reason from millrace_projections"); reason != "h�alt" {
		t.Errorf("reason %q", reason)
	}
}
