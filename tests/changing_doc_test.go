package tests_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// compare is that of docs/changing.md.
func compare(ctx context.Context, a *admin.Admin, tenant string,
	differ func(ctx context.Context, position int64) error) (err error) {
	first, second := millrace.ProjectionID{Tenant: tenant, Name: "totals"},
		millrace.ProjectionID{Tenant: tenant, Name: "totals@2"}
	defer func() { err = errors.Join(err, a.Resume(context.WithoutCancel(ctx), first)) }()
	if err := a.Pause(ctx, first); err != nil {
		return err
	}
	status, err := a.Status(ctx, admin.StatusFilter{Tenants: []string{tenant}, Names: []string{"totals"}, Limit: 1024})
	if err != nil {
		return err
	}
	var checkpoints []int64 // of each partition
	for _, p := range status.Projections {
		checkpoints = append(checkpoints, p.Checkpoint)
	}
	if err := a.WaitFor(ctx, second, slices.Max(checkpoints)); err != nil {
		return err
	}
	return differ(ctx, slices.Min(checkpoints))
}

const differSQL = `select stream, a.n, b.n from totals_1 a full join totals_2 b using (stream)
 where a.n is distinct from b.n and coalesce(b.position, 0) <= $1;
`

// besideTables are the tables of two versions, and a view by which readers use the version in the table reading.
var besideTables = []string{
	"create table totals_1 (stream text primary key, n bigint not null)",
	"create table totals_2 (stream text primary key, n bigint not null, position bigint not null)",
	"create table reading (version integer)",
	"insert into reading values (1)",
	`create view totals as select stream, n from totals_1 where exists (select 1 from reading where version = 1)
		union all select stream, n from totals_2 where exists (select 1 from reading where version = 2)`,
}

func besideFirst(b *kit.Bundle) millrace.Projection {
	count := func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
		return tx.Exec(ctx, "insert into totals_1 values ($1, 1) on conflict (stream) do update set n = totals_1.n + 1",
			e.Stream)
	}
	return millrace.Projection{Name: "totals", Partitions: 3, Handler: b.Store.Each(count)}
}

// besideSecond counts the events of the stream "twice" twice, where it is wrong.
func besideSecond(b *kit.Bundle, wrong bool) millrace.Projection {
	return millrace.Projection{Name: "totals", Version: 2,
		Swap: b.Store.Hook(kit.Exec("update reading set version = 2")),
		Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			n := 1
			if wrong && e.Stream == "twice" {
				n = 2
			}
			return tx.Exec(ctx, `insert into totals_2 values ($1, $2, $3)
				on conflict (stream) do update set n = totals_2.n + excluded.n, position = excluded.position`, e.Stream, n, e.Position)
		})}
}

// differences is how many streams differ between the versions at a position.
func differences(b *kit.Bundle, count *int64) func(ctx context.Context, position int64) error {
	sql := strings.Replace(strings.TrimSuffix(differSQL, ";\n"), "$1", "%d", 1)
	return func(ctx context.Context, position int64) error {
		counts, err := b.Store.Numbers(ctx, "select count(*) from ("+fmt.Sprintf(sql, position)+") d")
		if err == nil {
			*count = counts[0]
		}
		return err
	}
}

// readersSee is how many events readers see.
func readersSee(b *kit.Bundle) int64 {
	b.T.Helper()
	sum, err := b.Store.Numbers(b.Ctx, "select cast(coalesce(sum(n), 0) as bigint) from totals")
	b.Must(err)
	return sum[0]
}

// A release registers both versions, so readers of version 1 see new events through the whole rollout.
func TestVersionsRunBesideEachOtherThroughARollout(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt, stop := deploy(b, besideFirst(b))
		b.Reaches(rt, "totals", b.Head())
		stop()
		rt, stop = deploy(b, besideFirst(b), besideSecond(b, false))
		b.Reaches(rt, "totals", b.Append("a", 3).Last())
		if n := readersSee(b); n != b.Head() {
			t.Errorf("readers see %d events of %d", n, b.Head())
		}
		end := b.Flow()
		var count int64
		for range 10 {
			b.Must(compare(b.Ctx, rt.Admin, projection.DefaultTenant, differences(b, &count)))
			if count != 0 {
				t.Errorf("%d streams differ", count)
			}
		}
		b.Must(rt.Swap(b.Ctx, id("totals@2"), admin.SwapOptions{}))
		b.Reaches(rt, "totals", end())
		if n := readersSee(b); n != b.Head() {
			t.Errorf("readers see %d events of %d", n, b.Head())
		}
		stop()
		rt, stop = deploy(b, besideSecond(b, false))
		b.Reaches(rt, "totals", b.Head())
		if n := readersSee(b); n != b.Head() {
			t.Errorf("readers see %d events of %d", n, b.Head())
		}
		stop()
	}, besideTables...)
}

func TestComparisonFindsWhatDiffers(t *testing.T) {
	content, err := os.ReadFile("../docs/changing.md")
	if err != nil || !strings.Contains(string(content), "```sql\n"+differSQL+"```\n") {
		t.Errorf("docs/changing.md has other SQL, %v", err)
	}
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt, stop := deploy(b, besideFirst(b), besideSecond(b, true))
		b.Reaches(rt, "totals", b.Append("twice", 3).Last())
		end := b.Flow()
		var count int64
		b.Must(compare(b.Ctx, rt.Admin, projection.DefaultTenant, differences(b, &count)))
		end()
		if count != 1 {
			t.Errorf("%d streams differ", count)
		}
		stop()
	}, besideTables...)
}

// A release that registers version 2 alone leaves version 1 to the nodes before: when the last of them ends, readers
// see no new events until the swap.
func TestReleaseWithoutTheEarlierVersionStopsItsReadModel(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt, stop := deploy(b, besideFirst(b))
		b.Reaches(rt, "totals", b.Head())
		stop()
		before := readersSee(b)
		rt, stop = deploy(b, besideSecond(b, false))
		b.Reaches(rt, "totals@2", b.Head())
		isUnregistered(b, rt, "totals", 2)
		if n := readersSee(b); n != before {
			t.Errorf("readers see %d events, want %d", n, before)
		}
		b.Must(rt.Swap(b.Ctx, id("totals@2"), admin.SwapOptions{}))
		if n := readersSee(b); n != b.Head() {
			t.Errorf("readers see %d events of %d", n, b.Head())
		}
		stop()
	}, besideTables...)
}
