package sqlitestore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// storedPart is a partition as the file has it.
type storedPart struct {
	partition.Part
	row, partitions, number int
	token                   string
}

func storedParts(t testing.TB, store *Store, name string) (parts []storedPart) {
	t.Helper()
	var p storedPart
	var passed string
	columns := []any{&p.row, &p.number, &p.partitions, &p.From, &p.To, &passed, &p.token, &p.Checkpoint}
	rows := must(store.DB().QueryContext(testContext(t),
		`select p.id, partition, partitions, slot_from, slot_to, passed, token, checkpoint
		from millrace_projections p join millrace_leases l using (id) where name = ?1 order by partition`, name))(t)
	defer func() { noError(t, rows.Close()) }()
	for rows.Next() {
		noError(t, rows.Scan(columns...))
		next := p
		next.Passed = must(passedFrom(passed))(t)
		parts = append(parts, next)
	}
	noError(t, rows.Err())
	return parts
}

// handled returns the positions up to which the events of each stream were handled.
func handled(t testing.TB, parts []storedPart, streams []string) (positions []int64) {
	t.Helper()
	for _, stream := range streams {
		slot := partition.Slot(stream)
		at := slices.IndexFunc(parts, func(p storedPart) bool { return p.Contains(slot) })
		position := parts[at].Checkpoint
		for _, passed := range parts[at].Passed {
			if passed.Contains(slot) {
				position = max(position, passed.Position)
			}
		}
		positions = append(positions, position)
	}
	return positions
}

// streamRows is a row of a query: how many rows of a stream belong to a partition.
type streamRows struct {
	row    int
	stream string
}

func countByStream(t testing.TB, store *Store, table, name string) map[streamRows]int {
	t.Helper()
	counts := make(map[streamRows]int)
	rows := must(store.DB().QueryContext(testContext(t), "select x.projection, x.stream_id, count(*) from "+table+
		" x join millrace_projections p on p.id = x.projection where p.name = ?1 group by 1, 2", name))(t)
	defer func() { noError(t, rows.Close()) }()
	for rows.Next() {
		var at streamRows
		var n int
		noError(t, rows.Scan(&at.row, &at.stream, &n))
		counts[at] = n
	}
	noError(t, rows.Err())
	return counts
}

// TestResplitsKeepWhatBelongsToEachStream has partitions at random checkpoints, with dead letters and parked streams,
// and changes their number several times. TestResplitsProperty plays longer sequences by the port.
func TestResplitsKeepWhatBelongsToEachStream(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var streams []string
	for i := range 20 {
		streams = append(streams, fmt.Sprint("stream <&>", i))
	}
	sequence, begin := 0, time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		if time.Since(begin) > 5*time.Second {
			return
		}
		sequence++
		name := fmt.Sprint("p", sequence)
		addProjection(t, store, projection.DefaultTenant, name, "")
		letters, parked := make(map[string]int), make(map[string]int)
		for range rapid.IntRange(1, 4).Draw(rt, "changes") {
			for _, p := range storedParts(t, store, name) {
				advanceAndPark(rt, t, store, p, streams, letters, parked)
			}
			before := handled(t, storedParts(t, store, name), streams)
			n := rapid.IntRange(1, 7).Draw(rt, "partitions")
			noError(t, store.plane().Repartition(testContext(t), projection.ID{Name: name}, n))
			parts := storedParts(t, store, name)
			if after := handled(t, parts, streams); !slices.Equal(before, after) || len(parts) != n {
				rt.Fatalf("streams were handled up to %v, then %v in %d partitions of %d", before, after, len(parts), n)
			}
			for i, p := range parts {
				if p.number != partition.Numbers(n)[i] || p.partitions != n ||
					p.Range != partition.RangeOf(p.number, n) || p.token != "token" {
					rt.Fatalf("partition %d of %d: %+v", i, n, p)
				}
			}
			for table, want := range map[string]map[string]int{"millrace_dead_letters": letters,
				"millrace_parked_streams": parked} {
				got := countByStream(t, store, table, name)
				for at, n := range got {
					part := slices.IndexFunc(parts, func(p storedPart) bool { return p.row == at.row })
					if n != want[at.stream] || !parts[part].Contains(partition.Slot(at.stream)) {
						rt.Fatalf("%+v has %d rows of %s in %s, want %d", parts[part], n, at.stream, table,
							want[at.stream])
					}
				}
				if len(got) != len(want) {
					rt.Fatalf("%s has %v, want %v", table, got, want)
				}
			}
			if wrong := one[int](t, store,
				`select count(*) from millrace_projections p where p.name = ?1 and p.parked <>
				(select count(*) from millrace_dead_letters d where d.projection = p.id and d.state in ('parked', 'replaying'))`, name); wrong > 0 {
				rt.Fatalf("%d partitions count their parked events wrongly", wrong)
			}
		}
	})
	for _, table := range []string{"millrace_leases where id", "millrace_dead_letters where projection",
		"millrace_parked_streams where projection"} {
		if n := one[int](t, store, "select count(*) from "+table+
			" not in (select id from millrace_projections)"); n > 0 {
			t.Errorf("%d rows of %s have no projection", n, table)
		}
	}
}

// advanceAndPark moves the checkpoint of a partition, and parks events of some of its streams.
func advanceAndPark(rt *rapid.T, t testing.TB, store *Store, p storedPart, streams []string, letters,
	parked map[string]int) {
	t.Helper()
	mustExec(t, store, "update millrace_leases set checkpoint = checkpoint + ?2 where id = ?1", p.row,
		rapid.IntRange(0, 5).Draw(rt, "handled"))
	for _, stream := range streams {
		if !p.Contains(partition.Slot(stream)) || rapid.IntRange(0, 5).Draw(rt, "bad") > 0 {
			continue
		}
		letters[stream]++
		state := rapid.SampledFrom([]string{"parked", "replaying", "resolved", "discarded"}).Draw(rt, "state")
		mustExec(t, store,
			`insert into millrace_dead_letters (projection, position, stream_id, version, type, state, error, stack, attempts, first_failed_at, last_failed_at)
			values (?1, (select count(*) from millrace_dead_letters), ?2, 1, 'T', ?3, '', '', 1, 0, 0)`, p.row, stream, state)
		if parked[stream] == 0 {
			parked[stream] = 1
			mustExec(t, store, "insert into millrace_parked_streams (projection, stream_id) values (?1, ?2)", p.row,
				stream)
		}
	}
	mustExec(t, store,
		"update millrace_projections set parked = (select count(*) from millrace_dead_letters where projection = ?1 and state in ('parked', 'replaying')) where id = ?1", p.row)
}

// parted makes a projection p with n partitions, and returns its rows.
func parted(t testing.TB, store *Store, n int) (rows []int) {
	t.Helper()
	addProjection(t, store, projection.DefaultTenant, "p", "")
	return resplitInto(t, store, n)
}

func resplitInto(t testing.TB, store *Store, n int) (rows []int) {
	t.Helper()
	noError(t, store.plane().Repartition(testContext(t), projection.ID{Name: "p"}, n))
	for _, p := range storedParts(t, store, "p") {
		rows = append(rows, p.row)
	}
	return rows
}

func TestResplitIntoTheSameNumberChangesNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	rows := parted(t, store, 3)
	mustExec(t, store, "delete from millrace_notices")
	if again := resplitInto(t, store, 3); !slices.Equal(rows, again) ||
		one[int](t, store, "select count(*) from millrace_notices") > 0 {
		t.Errorf("rows %v, then %v", rows, again)
	}
	resplitInto(t, store, 2)
	if one[int](t, store,
		"select count(*) from millrace_notices where tenant = 'default'") != 1 {
		t.Error("the owner of the file is not notified")
	}
}

func TestResplitsAreRefusedByName(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newTenant(t, store, "leaving")
	addProjection(t, store, "leaving", "p", "")
	must(store.decideState(testContext(t), "leaving", control.To(tenancy.Dropping)))(t)
	for id, want := range map[projection.ID]error{
		{Name: "q"}:                    projection.ErrUnknownProjection,
		{Tenant: "none", Name: "p"}:    tenancy.ErrUnknown,
		{Tenant: "leaving", Name: "p"}: tenancy.ErrDropping,
	} {
		if err := store.plane().Repartition(testContext(t), id, 2); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), id.Name) {
			t.Errorf("%v: %v", id, err)
		}
	}
}

func TestResplitCountsTheDeathOfAnOwner(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for i, owner := range []string{"dead", living(t, store)} {
		name := fmt.Sprint("p", i)
		addProjection(t, store, projection.DefaultTenant, name, owner)
		noError(t, store.plane().Repartition(testContext(t), projection.ID{Name: name}, 2))
		const crashes = "select sum(crash_count) from millrace_leases join millrace_projections using (id) where name = ?1 and owner is null"
		if n := one[int](t, store, crashes, name); n != []int{2, 0}[i] {
			t.Errorf("owner %s: %d crashes in two partitions", owner, n)
		}
	}
}

// The failing event and the reason of a stop go to the partition that has the stream.
func TestFailureGoesToTheNewPartitionOfItsStream(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	at := mustAppend(t, store.tenant, "order-1", event.Any, someEvents(1)...).Positions[0]
	row := parted(t, store, 1)[0]
	mustExec(t, store,
		`update millrace_projections set failing_position = ?2, attempts = 3, failing_since = 5, last_error = 'bad', crash_position = ?2,
		crash_attempts = 2, crash_since = 4, halted = 1, failed_reason = 'stopped', skipped = 9 where id = ?1`, row, at)
	parted := resplitInto(t, store, 4)
	var failing []int
	for i, row := range parted {
		var attempts, crashes, skipped int
		var halted bool
		noError(t, store.DB().QueryRowContext(ctx,
			"select attempts, crash_attempts, halted, skipped from millrace_projections where id = ?1",
			row).Scan(&attempts, &crashes, &halted, &skipped))
		if attempts == 3 && crashes == 2 && halted {
			failing = append(failing, i+1)
		}
		if (skipped == 9) != (i == 0) {
			t.Errorf("partition %d has skipped %d", i+1, skipped)
		}
	}
	if want := partition.Of(partition.Slot("order-1"), 4); !slices.Equal(failing, []int{want}) {
		t.Errorf("the partitions %v fail, want %d", failing, want)
	}
}

// An open discard ends, and an open replay continues by a row for each partition.
func TestCommandsContinueAfterAResplit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	row := parted(t, store, 1)[0]
	const letter = `insert into millrace_dead_letters (projection, position, stream_id, version, type, error, stack, attempts, first_failed_at, last_failed_at, last_command)
		values (?1, ?2, ?3, 1, ?4, '', '', 1, 0, 0, ?5)`
	const command = "insert into millrace_commands (projection, kind, type, max_events, created_at, current_stream) values (?1, ?2, ?3, 100, 0, ?4)"
	mustExec(t, store, command, row, "discard", "D", nil)
	mustExec(t, store, command, row, "replay", "R", "order-2")
	mustExec(t, store,
		"insert into millrace_parked_streams (projection, stream_id, last_command) values (?1, 'order-2', 2)", row)
	for i, eventType := range []string{"D", "R", "D", "R"} {
		mustExec(t, store, letter, row, i+1, fmt.Sprint("order-", 1+i/2), eventType, 2*(i%2))
	}
	for _, n := range []int{4, 2} {
		rows := resplitInto(t, store, n)
		if done := one[int](t, store,
			"select done from millrace_commands where id = 1 and ended_at is not null"); done != 2 {
			t.Errorf("%d events were discarded", done)
		}
		if open := one[int](t, store,
			"select count(distinct projection) from millrace_commands where ended_at is null and root = 2 and type = 'R' and max_events = 100"); open != n {
			t.Errorf("the replay continues in %d partitions of %d", open, n)
		}
		at := rows[partition.Of(partition.Slot("order-2"), n)-1]
		current := one[int](t, store,
			"select id from millrace_commands where ended_at is null and current_stream = 'order-2' and projection = ?1", at)
		if marked := one[int](t, store, "select last_command from millrace_parked_streams where projection = ?1",
			at); marked != current {
			t.Errorf("the stream was tried by %d, and is replayed by %d", marked, current)
		}
		if strays := one[int](t, store, `select count(*) from millrace_dead_letters d where type = 'R'
			and not exists (select 1 from millrace_commands c where c.id = d.last_command and c.projection = d.projection and c.ended_at is null)`); strays > 0 {
			t.Errorf("%d dead letters were tried by a row that is not theirs", strays)
		}
	}
}
