package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
)

// pageEvents is how many events each tenant of the scenario pages has. Its projections have handled between none and
// all of them.
const pageEvents = 10

var pagesScenario = scenario{
	name: "pages",
	about: `Pages of the status of many projections, 10 of each tenant, read by a process that runs none of them: in the order of their
		ids, by how many positions they are behind, and by their lag. Each tenant has 10 events, and its projections have handled none,
		one, and so on. Measured are the first and the last page, each the median of 5 reads, and for the first page the messages to
		the server and the processor time of the process and of the server. The verification checks the number and the order of the
		projections on both pages.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name: thousands(int64(o.pageProjections)) + " projections, pages of " + fmt.Sprint(o.pageRows),
			metrics: []metric{
				{"first page", "ms", lower, true}, {"last page", "ms", lower, true}, {"messages", "", lower, false},
				{"own CPU", "ms", lower, false},
				{"server CPU", "ms", lower, false},
			},
			goals: []goal{
				{contender: "by behind", metric: "first page", atMost: 1000},
				{contender: "by behind", metric: "last page", atMost: 1000},
				{contender: "by lag", metric: "first page", atMost: 1000},
				{contender: "by lag", metric: "last page", atMost: 1000},
			},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return pageContenders(ctx, e, o) },
		}}
	},
}

func pageContenders(ctx context.Context, e *env, o sizeOptions) (contenders []contender, err error) {
	f, err := newFleet(ctx, e, o.pageProjections, o.perTenant)
	if err != nil {
		return nil, err
	}
	if err := f.lag(ctx); err != nil {
		return nil, err
	}
	a, err := admin.New(f.store)
	if err != nil {
		return nil, err
	}
	for _, by := range []struct {
		name string
		sort admin.Sort
	}{{"by id", admin.SortByID}, {"by behind", admin.SortByBehind}, {"by lag", admin.SortByLag}} {
		p := pages{fleet: f, admin: a, sort: by.sort, rows: o.pageRows}
		p.last, err = p.beforeLast(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", by.name, err)
		}
		contenders = append(contenders, contender{by.name, p.round})
	}
	return contenders, nil
}

// lag lets all projections run once, appends further events to all tenants, and sets the checkpoints back by different
// numbers of events.
func (f *fleet) lag(ctx context.Context) error {
	if err := f.prepareRestart(ctx); err != nil {
		return err
	}
	now := time.Now()
	for i, tenant := range f.tenants {
		more := make([]event.Event, pageEvents-1)
		for n := range more {
			more[n] = probe
			more[n].Time = now.Add(-time.Duration(i+n*len(f.tenants)) * time.Minute)
		}
		if _, err := tenant.Append(ctx, "more", event.Any, more...); err != nil {
			return err
		}
	}
	_, err := f.Pool.Exec(ctx, "update "+storeSchema+".leases set checkpoint = id % $1", pageEvents+1)
	if err != nil {
		return err
	}
	_, err = f.Pool.Exec(ctx, "vacuum analyze "+storeSchema+".projections, "+storeSchema+".leases")
	return err
}

// pages are the pages of a status in one order. last is where the last one begins.
type pages struct {
	*fleet
	admin *admin.Admin
	sort  admin.Sort
	rows  int
	last  string
}

// beforeLast returns where the last page begins.
func (p pages) beforeLast(ctx context.Context) (next string, err error) {
	const most = 10_000
	for left := p.projections - p.rows; left > 0; left -= most {
		page, err := p.admin.Status(ctx, admin.StatusFilter{Sort: p.sort, Next: next, Limit: min(left, most)})
		if err != nil {
			return "", err
		}
		next = page.Next
	}
	return next, nil
}

func (p pages) round(ctx context.Context, _ int) (figures, verify, error) {
	messages, before := p.statements.n.Load(), p.usageBefore()
	first, took, err := p.read(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	after := p.usageAfter()
	own, server := after.since(before)
	each := 10 * after.at.Sub(before.at).Seconds() / pageReads // milliseconds of a percent, for each read
	measured := figures{took, 0, float64(p.statements.n.Load()-messages) / pageReads, own * each, server * each}
	last, took, err := p.read(ctx, p.last)
	measured[1] = took
	return measured, func(context.Context) error { return p.check(first, last) }, err
}

// pageReads is how often a page is read in each round.
const pageReads = 5

// read reads a page several times, and returns the median of the times in milliseconds.
func (p pages) read(ctx context.Context, next string) (page admin.Status, took float64, err error) {
	var times []float64
	for range pageReads {
		began := time.Now()
		page, err = p.admin.Status(ctx, admin.StatusFilter{Sort: p.sort, Next: next, Limit: p.rows})
		if err != nil {
			return page, 0, err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return page, median(times), nil
}

// check returns an error unless the pages are full and in order, and the first one is before the last one.
func (p pages) check(first, last admin.Status) error {
	if len(first.Projections) != p.rows || len(last.Projections) != p.rows {
		return fmt.Errorf("pages of %d and %d projections, want %d", len(first.Projections), len(last.Projections),
			p.rows)
	}
	list := append(first.Projections[:p.rows:p.rows], last.Projections...)
	for i, s := range list[1:] {
		before := list[i]
		inOrder := before.ID.String() < s.ID.String()
		switch p.sort {
		case admin.SortByBehind:
			inOrder = before.Behind > s.Behind || before.Behind == s.Behind && inOrder
		case admin.SortByLag: // a lag is read at another time than that of another tenant
			inOrder = before.Lag > s.Lag-time.Second
		}
		if !inOrder {
			return fmt.Errorf("%s, %d positions and %v behind, stands before %s, %d and %v behind", before.ID,
				before.Behind, before.Lag, s.ID, s.Behind, s.Lag)
		}
	}
	return nil
}
