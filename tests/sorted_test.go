package tests_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// pagesOf returns the projections of all pages of a filter, and how many pages there are.
func pagesOf(b *kit.Bundle, a *admin.Admin, filter admin.StatusFilter) (all []admin.ProjectionStatus, pages int) {
	b.T.Helper()
	for {
		status, err := a.Status(b.Ctx, filter)
		b.Must(err)
		all = append(all, status.Projections...)
		pages++
		switch status.Next {
		case "":
			return all, pages
		case filter.Next:
			b.T.Fatalf("%+v: the page is followed by itself", filter)
		}
		filter.Next = status.Next
	}
}

// uneven makes tenants whose projections are behind by different numbers of events, and stops the node that ran them.
// In each tenant "p0" has handled nothing, "p1" the first event, and so on, and "all" everything.
func uneven(b *kit.Bundle, tenants int) (projections int) {
	b.T.Helper()
	const names = 4
	var list []millrace.Projection
	for i := range names {
		list = append(list, millrace.Projection{Name: fmt.Sprint("p", i),
			Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
				if e.Version > int64(i) {
					return errors.New("on purpose")
				}
				return nil
			})})
	}
	rt := b.Another(millrace.Config{}, append(list, b.Recorders("all")...)...)
	made := b.Tenants(tenants)
	stop := b.Start(rt)
	failing := 0
	for i, tenant := range made {
		events := 3 + i%7
		failing += min(events, names)
		head := b.AppendTo(tenant, "s", events)
		b.ReachesOf(rt, tenant.Name(), "all", head)
	}
	b.Eventually("all failing projections have stopped",
		func() bool { return b.Summary(rt).States[admin.StateFailed] == failing })
	stop()
	return (names + 1) * tenants
}

func TestPagesAreSortedByLag(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		projections := uneven(b, 9)
		a := newAdmin(b)
		byID, pages := pagesOf(b, a, admin.StatusFilter{Limit: 7})
		if len(byID) != projections || pages < projections/7 {
			t.Fatalf("%d projections in %d pages, want %d", len(byID), pages, projections)
		}
		compareIDs := func(x, y admin.ProjectionStatus) int {
			return cmp.Or(cmp.Compare(x.ID.Tenant, y.ID.Tenant), cmp.Compare(x.ID.Name, y.ID.Name))
		}
		orders := map[admin.Sort]func(x, y admin.ProjectionStatus) int{
			admin.SortByBehind: func(x, y admin.ProjectionStatus) int {
				return cmp.Or(cmp.Compare(y.Behind, x.Behind), compareIDs(x, y))
			},
			admin.SortByLag: func(x, y admin.ProjectionStatus) int {
				// Lags are read at different times. Events are appended further apart than that.
				if d := x.Lag - y.Lag; d.Abs() > time.Millisecond {
					return cmp.Compare(y.Lag, x.Lag)
				}
				return compareIDs(x, y)
			},
		}
		for sort, order := range orders {
			for _, filter := range []admin.StatusFilter{{}, {Names: []string{"p1", "all"}},
				{Tenants: []string{"tenant3", "", "tenant1"}}, {States: []admin.State{admin.StateFailed}},
				{States: []admin.State{admin.StateNotOwned}}, {Parked: true}, {Limit: 1}, {Limit: 4},
				{Limit: projections}, {Limit: 10_000}} {
				all, err := a.Status(b.Ctx, admin.StatusFilter{Tenants: filter.Tenants,
					Names: filter.Names, States: filter.States, Parked: filter.Parked, Limit: 10_000})
				b.Must(err)
				want := slices.SortedFunc(slices.Values(all.Projections), order)
				filter.Sort, filter.Limit = sort, cmp.Or(filter.Limit, 5)
				found, _ := pagesOf(b, a, filter)
				if !slices.EqualFunc(found, want, func(x, y admin.ProjectionStatus) bool {
					return x.ID == y.ID && x.Behind == y.Behind && x.State == y.State
				}) {
					t.Errorf("%+v:\n%v\nwant\n%v", filter, brief(found), brief(want))
				}
				for i, p := range found {
					samePage := i > 0 && i/filter.Limit == (i-1)/filter.Limit
					if (p.Lag > 0) != (p.Behind > 0) || samePage && order(found[i-1], p) > 0 {
						t.Errorf("%+v: %v", filter, brief(found[max(0, i-1):i+1]))
					}
				}
			}
		}
	})
}

func brief(list []admin.ProjectionStatus) (lines []string) {
	for _, p := range list {
		lines = append(lines, fmt.Sprintf("%v %s -%d %v", p.ID, p.State, p.Behind, p.Lag))
	}
	return lines
}

func TestPagesOfAnotherOrderAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Start(b.Another(millrace.Config{}, b.Recorders("a", "b")...))
		a := newAdmin(b)
		var next string
		b.Eventually("there are two pages", func() bool {
			status, err := a.Status(b.Ctx, admin.StatusFilter{Sort: admin.SortByBehind, Limit: 1})
			b.Must(err)
			next = status.Next
			return next != ""
		})
		for want, filter := range map[string]admin.StatusFilter{
			"status: StatusFilter.Next must be the Next of a Status with the same Sort": {
				Next: next, Sort: admin.SortByLag,
			},
			"status: StatusFilter.Next must be the Next of a Status": {
				Next: "MQ", Sort: admin.SortByLag,
			},
			`status: StatusFilter.Sort is not known: "age"`: {Sort: "age"},
			"status: StatusFilter.After must not be set together with Next or Sort": {
				Sort: admin.SortByLag, After: projection.ID{Name: "a"},
			},
		} {
			if _, err := a.Status(b.Ctx, filter); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
