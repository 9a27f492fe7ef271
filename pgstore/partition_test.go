package pgstore

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// partitionRow is a row of a projection.
type partitionRow struct {
	Partition, Partitions, SlotFrom, SlotTo int32
	Leased                                  bool
}

func rowsOf(t testing.TB, store *Store, tenant, name string) []partitionRow {
	t.Helper()
	rows := must(store.pool.Query(testContext(t),
		`select partition, partitions, slot_from, slot_to, exists (select from millrace.leases l where l.id = p.id)
		from millrace.projections p where tenant = $1 and name = $2 order by partition`, tenant, name))(t)
	return must(pgx.CollectRows(rows, pgx.RowToStructByPos[partitionRow]))(t)
}

func TestPartitionsOfANewProjectionShareAllSlotsAndOneToken(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newTenant(t, store, "other")
	list := []engine.NewProjection{{Tenant: "default", Name: "p", Partitions: 3},
		{Tenant: "other", Name: "p", Partitions: 16}, {Tenant: "other", Name: "q"},
		{Tenant: "unknown", Name: "p", Partitions: 4}}
	must(store.plane().Ensure(testContext(t), list))(t)
	for i := range list {
		list[i].Partitions = 7 // a later release has other numbers; the rows that exist stay
	}
	must(store.plane().Ensure(testContext(t), list))(t)
	for _, want := range []engine.NewProjection{{Tenant: "default", Name: "p", Partitions: 3},
		{Tenant: "other", Name: "p", Partitions: 16}, {Tenant: "other", Name: "q", Partitions: 1}} {
		rows, next := rowsOf(t, store, want.Tenant, want.Name), int32(0)
		if len(rows) != want.Partitions {
			t.Fatalf("%+v has the rows %+v", want, rows)
		}
		for i, row := range rows {
			number := int32(i + 1)
			if want.Partitions == 1 {
				number = 0
			}
			if row.Partition != number || int(row.Partitions) != want.Partitions || row.SlotFrom != next ||
				!row.Leased {
				t.Errorf("row %d of %+v is %+v", i, want, row)
			}
			next = row.SlotTo
		}
		if next != partition.Slots {
			t.Errorf("the slots of %+v end at %d", want, next)
		}
		if n := one[int](t, store,
			"select count(distinct token) from millrace.projections where tenant = $1 and name = $2", want.Tenant,
			want.Name); n != 1 {
			t.Errorf("%+v has %d tokens", want, n)
		}
	}
	if n := one[int](t, store, "select count(distinct token) from millrace.projections"); n != 3 {
		t.Errorf("3 projections have %d tokens", n)
	}
}

func TestReleasesWithDifferentNumbersOfPartitionsDoNotMix(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var tenants []string
	for _, name := range []string{"a", "b", "c", "d"} {
		newTenant(t, store, name)
		tenants = append(tenants, name)
	}
	for round := range 5 {
		name := string(rune('p' + round))
		noError(t, together(8, func(i int) error {
			mine := slices.Clone(tenants)
			if i%2 == 0 {
				slices.Reverse(mine)
			}
			var list []engine.NewProjection
			for _, tenant := range mine {
				list = append(list, engine.NewProjection{Tenant: tenant, Name: name, Partitions: 1 + i})
			}
			_, err := store.plane().Ensure(testContext(t), list)
			return err
		}))
		for _, tenant := range tenants {
			rows := rowsOf(t, store, tenant, name)
			for _, row := range rows {
				if int(row.Partitions) != len(rows) {
					t.Errorf("the rows of %s in %s are %+v", name, tenant, rows)
				}
			}
		}
	}
}

func TestSlotsInSQLAreThoseOfGo(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	odd := []string{"", "a", "order-1", "Ä", "日本", "😀", "e\u0301", "\\", "'", `"`, "x'; drop table events; --", `\x41`,
		"%s", " ", "\t\n\r", strings.Repeat("x", 1024),
		strings.Repeat("ü", 512), "\u202e", "\ufeff", "\U0010ffff"}
	insert := `insert into millrace_default.events (stream_id, stream_version, type, body)
		select s, coalesce((select max(stream_version) from millrace_default.events where stream_id = s), 0) + 1, 'T', '{}' from unnest($1::text[]) s returning stream_id, slot`
	check := func(t interface {
		Errorf(string, ...any)
		Fatal(...any)
	}, streams []string) {
		rows, _ := store.pool.Query(context.Background(), insert, streams)
		var stream string
		var slot int32
		n := 0
		_, err := pgx.ForEachRow(rows, []any{&stream, &slot}, func() error {
			n++
			if slot != partition.Slot(stream) {
				t.Errorf("slot of %q: %#07x in SQL, %#07x in Go", stream, slot, partition.Slot(stream))
			}
			return nil
		})
		if err != nil || n != len(streams) {
			t.Fatal(n, err)
		}
	}
	check(t, odd)
	text := rapid.StringN(0, -1,
		1024).Filter(func(s string) bool { return !strings.Contains(s, "\x00") && strings.ToValidUTF8(s, "") == s })
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SliceOfNDistinct(text, 1, 20, rapid.ID[string]).Draw(t, "streams"))
	})
}

func TestForeignWritersCannotChooseASlot(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	_, err := store.pool.Exec(testContext(t),
		"insert into millrace_default.events (slot, stream_id, stream_version, type, body) values (5, 's', 1, 'T', '{}')")
	if err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a slot was inserted: %v", err)
	}
}

// The model is a filter in Go over all events.
func TestReadsOfAShareHaveItsEventsOnly(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
		select 's' || n % 40, n / 40 + 1, 'T' || n % 3, '{}' from generate_series(0, 1999) n`)
	var all []event.Envelope
	for e, err := range store.tenant.ReadAll(testContext(t), event.ReadOptions{}) {
		noError(t, err)
		all = append(all, e)
	}
	head := all[len(all)-1].Position
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 3, 16, 1024}).Draw(t, "partitions")
		share := partition.Share{Range: partition.RangeOf(rapid.IntRange(1, n).Draw(t, "partition"), n)}
		for from := share.From; rapid.Bool().Draw(t, "passed") && from < share.To; from += (share.To-share.From)/5 + 1 {
			to := min(share.To, from+(share.To-share.From)/5)
			share.Passed = append(share.Passed, partition.Passed{Range: partition.Range{From: from, To: to},
				Position: rapid.Int64Range(0, head).Draw(t, "up to")})
		}
		r := engine.ReadRange{
			UpTo: rapid.Int64Range(0, head).Draw(t, "up to"), Share: share,
			Limit: rapid.IntRange(1, 3000).Draw(t, "limit"), MaxBytes: 1 << 20,
		}
		if rapid.Bool().Draw(t, "types") {
			r.Types = []string{"T1", "T2"}
		}
		var got, want []int64
		for _, e := range all {
			if e.Position <= r.UpTo && share.Has(e.Stream, e.Position) && (r.Types == nil || e.Type != "T0") {
				want = append(want, e.Position)
			}
		}
		for r.After < r.UpTo {
			page, err := store.port().Read(context.Background(), projection.DefaultTenant, r)
			if err != nil || page.To <= r.After {
				t.Fatalf("read after %d: up to %d, %v", r.After, page.To, err)
			}
			for _, e := range page.Events {
				got = append(got, e.Position)
			}
			r.After = page.To
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestLeaseHasTheShareOfItsPartition(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	must(store.plane().Ensure(testContext(t), []engine.NewProjection{{Tenant: "default", Name: "p", Partitions: 3}}))(t)
	mustExec(t, store,
		`update millrace.projections set passed_from = '{89478485, 100000000}', passed_to = '{90000000, 100000005}', passed_upto = '{500, 70}' where partition = 2`)
	mustExec(t, store, `update millrace.leases set checkpoint = 70`)
	leases := must(claimFree(testContext(t), store,
		engine.Node{ID: uuid.NewString(), Projections: []string{"p"}, LeaseDuration: time.Minute}, 10))(t)
	if len(leases) != 3 {
		t.Fatalf("claimed %+v", leases)
	}
	for _, l := range leases {
		want := partition.Share{Range: partition.RangeOf(l.ID.Partition, 3)}
		if l.ID.Partition == 2 { // the second range that was handled before has no events after the checkpoint
			want.Passed = []partition.Passed{{Range: partition.Range{From: 89478485, To: 90000000}, Position: 500}}
		}
		if l.Partitions != 3 || l.Share.Range != want.Range || !slices.Equal(l.Share.Passed, want.Passed) {
			t.Errorf("%v of %d has the share %+v, want %+v", l.ID, l.Partitions, l.Share, want)
		}
	}
}

// There is no index on slot: each partition reads all pages of the table. Sorting would read all of them for each page
// of events.
func TestReadsOfAShareAreInOrderOfThePrimaryKey(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "alter table millrace_default.events set (autovacuum_enabled = off)")
	mustExec(t, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
		select 's' || n, v, 'T' || n % 10, '{"a": 1}' from generate_series(1, 5) v, generate_series(1, 20000) n`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, store, "vacuum analyze millrace_default.events")
		}
		for _, n := range []int{2, 1024} {
			for _, types := range [][]string{{}, {"T1", "T2"}} {
				slots := partition.RangeOf(2, n)
				for _, upTo := range []int64{math.MaxInt64, 60_000} {
					plan := explain(t, store, store.tenant.sql("read_share"), 50_000, upTo, 500, slots.From, slots.To,
						types)
					if !strings.Contains(plan, "Index Scan using events_pkey") || strings.Contains(plan, "Sort") {
						t.Errorf("partition 2 of %d, analyzed %v:\n%s", n, analyzed, plan)
					}
				}
			}
		}
	}
}
