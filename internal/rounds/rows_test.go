package rounds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

var (
	now      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	errFault = errors.New("a fault")
)

// fresh returns the Rows of a node that runs p in three partitions for all tenants, and q for those whose names begin
// with a. If tenants are named, the node serves no others.
func fresh(tenants ...string) *Rows {
	filter := engine.NewTenantFilter([]string{"a*"})
	node := engine.Node{Projections: []string{"p", "q"}, Tenants: tenants,
		Filters: map[string]engine.TenantFilter{"q": filter}}
	return NewRows(node, node, map[string]*engine.Definition{"p": {Partitions: 3}, "q": {RenamedFrom: "o"}})
}

func tenantsOf(names ...string) (tenants []engine.Tenant) {
	for _, name := range names {
		tenants = append(tenants, engine.Tenant{Row: int32(name[0]), Name: name, State: tenancy.Active})
	}
	return tenants
}

// ensured returns Rows after a round in which these tenants got their rows.
func ensured(t *testing.T, names ...string) *Rows {
	t.Helper()
	r := fresh()
	e := r.Begin(now, Conditions{})
	e.Listed(tenantsOf(names...), now)
	if got := parts(e); len(names) > 0 && len(got) == 0 {
		t.Fatal("no rows are made")
	}
	r.Ended(e, now, nil)
	return r
}

// parts makes all rows of a round, and returns the tenants of each part.
func parts(e *Ensure) (parts []string) {
	for e.More() {
		p := e.Next()
		parts = append(parts, tenantsIn(p))
		_ = e.Made(p, engine.LeftOut{}, nil)
	}
	return parts
}

func tenantsIn(p Part) string {
	var names []string
	for _, n := range p.Projections {
		names = append(names, n.Tenant)
	}
	return strings.Join(slices.Compact(names), " ")
}

// needs begins a round and returns the tenants that need rows if these are listed.
func needs(r *Rows, at time.Time, listed []engine.Tenant) (*Ensure, string) {
	e := r.Begin(at, Conditions{})
	e.Listed(listed, at)
	var names []string
	for _, t := range e.fresh {
		names = append(names, t.Name)
	}
	return e, strings.Join(names, " ")
}

func TestTenantsGetTheirRowsOnce(t *testing.T) {
	r := fresh()
	listed := tenantsOf("a", "b", "c", "d")
	listed[1].State, listed[2].State = tenancy.Paused, tenancy.Archived
	e, need := needs(r, now, listed)
	if need != "a b d" {
		t.Errorf("rows for %q", need)
	}
	if made := parts(e); len(made) != 1 || made[0] != "a b d" || !e.MadeRows() {
		t.Errorf("parts %q", made)
	}
	if report := r.Ended(e, now, nil); report.More || report.Again || report.Changed || len(report.Removed) > 0 {
		t.Errorf("report %+v", report)
	}
	e, need = needs(r, now.Add(listAgain), listed[:3])
	if need != "" || e.MadeRows() {
		t.Errorf("rows once more for %q", need)
	}
	if removed := r.Ended(e, now, nil).Removed; len(removed) != 1 || removed[0] != "d" {
		t.Errorf("removed: %q", removed)
	}
	again := tenantsOf("a", "b", "d")
	again[0].Row++ // created again
	if _, need := needs(r, now.Add(2*listAgain), again); need != "a d" {
		t.Errorf("rows for %q", need)
	}
}

func TestRoundsListOnlyNamedTenantsBetweenTwoLists(t *testing.T) {
	for name, test := range map[string]struct {
		prepare    func(r *Rows)
		conditions Conditions
		after      time.Duration
		want       string // nil for all
	}{
		"nothing":         {want: "[]"},
		"a notification":  {prepare: func(r *Rows) { r.Named(map[string]bool{"b": true}) }, want: "[b]"},
		"a missing row":   {prepare: func(r *Rows) { r.Gone("a") }, want: "[a]"},
		"of no tenant":    {prepare: func(r *Rows) { r.Gone("x") }, want: "[]"},
		"a new session":   {prepare: func(r *Rows) { r.ListAll() }, want: "all"},
		"a resync":        {conditions: Conditions{Resyncs: true}, want: "all"},
		"nearly an hour":  {after: listAgain - 1, want: "[]"},
		"an hour":         {after: listAgain, want: "all"},
		"a new server":    {prepare: func(r *Rows) { r.Seen(1); r.Seen(2) }, want: "all"},
		"the same server": {prepare: func(r *Rows) { r.Seen(1); r.Seen(1); r.Seen(0) }, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ensured(t, "a", "b")
			if test.prepare != nil {
				test.prepare(r)
			}
			e := r.Begin(now.Add(test.after), test.conditions)
			got := fmt.Sprint(e.Names)
			if e.Names == nil {
				got = "all"
			}
			if got != test.want || e.Over() != (test.want == "[]") {
				t.Errorf("lists %s, want %s; over %v", got, test.want, e.Over())
			}
			if e := r.Begin(now.Add(test.after), Conditions{}); !e.Over() {
				t.Errorf("the next round lists %q once more", e.Names)
			}
		})
	}
}

// Where no notifications arrive, each search lists all tenants.
func TestRoundsListAllTenantsWithoutNotifications(t *testing.T) {
	r := fresh("a")
	c := Conditions{Pooled: true, Interval: time.Minute}
	for i := range 3 {
		at := now.Add(time.Duration(i) * c.Interval / 2)
		if e := r.Begin(at, c); fmt.Sprint(e.Names) != "[a]" {
			t.Errorf("round %d lists %q", i, e.Names)
		}
		if e := r.Begin(at.Add(c.Interval/2-1), c); !e.Over() {
			t.Errorf("a round soon after round %d lists %q", i, e.Names)
		}
	}
}

func TestNotificationsOfTenantsThatTheNodeDoesNotServeAreIgnored(t *testing.T) {
	r := fresh("a", "b")
	r.Begin(now, Conditions{})
	r.Named(map[string]bool{"b": true, "c": true})
	e := r.Begin(now, Conditions{})
	if fmt.Sprint(e.Names) != "[b]" {
		t.Errorf("lists %q", e.Names)
	}
	e.Listed(nil, now) // it was dropped
	if !slices.Equal(e.removed, []string{"b"}) {
		t.Errorf("removed: %q", e.removed)
	}
}

func TestTenantThatMayLackRowsGetsThem(t *testing.T) {
	r := ensured(t, "a", "b")
	r.Named(map[string]bool{"b": true}) // its set of projections changed
	if _, need := needs(r, now, tenantsOf("b")); need != "b" {
		t.Errorf("rows for %q", need)
	}
	r.Gone("a")
	if !r.Gone("b") || r.Gone("b") {
		t.Error("a second missing row of a tenant causes another round")
	}
	if _, need := needs(r, now, tenantsOf("a", "b")); need != "a b" {
		t.Errorf("rows for %q", need)
	}
}

// A transaction makes about as many rows as the limit allows. After a failure it makes half as many.
func TestRowsAreMadeInParts(t *testing.T) {
	r := fresh()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("b", i))
	}
	e, _ := needs(r, now, tenantsOf(names...))
	sizes := func(e *Ensure) (sizes []int) {
		for _, part := range parts(e) {
			sizes = append(sizes, len(strings.Fields(part)))
		}
		return sizes
	}
	first := e.Next()
	if n := len(first.Projections); n != rowsMost/3 {
		t.Errorf("%d tenants in the first transaction", n)
	}
	if err := e.Made(first, engine.LeftOut{}, errFault); !errors.Is(err, errFault) {
		t.Errorf("the failure became %v", err)
	}
	report := r.Ended(e, now, errFault)
	if report.More || e.MadeRows() {
		t.Error("a failed round made rows, or another search follows it at once")
	}
	e, _ = needs(r, now, tenantsOf(names...))
	if got := sizes(e); !slices.Equal(got, []int{166, 332, 333, 169}) {
		t.Errorf("after a failure, parts of %d tenants", got)
	}
	r.Ended(e, now, nil)
	if r.atOnce != rowsMost {
		t.Errorf("the next transaction makes %d rows", r.atOnce)
	}
	e, _ = needs(fresh(), now, tenantsOf("b", "c"))
	e.atOnce = 1
	if !slices.Equal(parts(e), []string{"b", "c"}) {
		t.Error("a tenant with more rows than the limit is left out")
	}
	e, _ = needs(fresh(), now, tenantsOf("b", "c", "d"))
	e.atOnce = 6
	if !slices.Equal(parts(e), []string{"b c", "d"}) {
		t.Error("a transaction does not make as many rows as it may")
	}
	e, _ = needs(fresh(), now, tenantsOf("b"))
	e.atOnce = 1
	_ = e.Made(Part{rows: 1}, engine.LeftOut{}, errFault)
	if e.atOnce != 1 {
		t.Errorf("a transaction makes %d rows", e.atOnce)
	}
}

func TestRoundThatRunsOutOfTimeIsContinued(t *testing.T) {
	r := fresh()
	e, _ := needs(r, now, tenantsOf("b", "c"))
	e.atOnce = 3
	_ = e.Made(e.Next(), engine.LeftOut{}, nil)
	if report := r.Ended(e, now, nil); !report.More {
		t.Error("no search follows")
	}
	if _, need := needs(r, now, tenantsOf("b", "c")); need != "c" {
		t.Errorf("rows for %q", need)
	}
}

func TestRowsOfTenantsWithoutProjectionsNeedNoTransaction(t *testing.T) {
	filter := engine.NewTenantFilter([]string{"a"})
	node := engine.Node{Projections: []string{"p"}, Filters: map[string]engine.TenantFilter{"p": filter}}
	r := NewRows(node, node, map[string]*engine.Definition{"p": {}})
	e, _ := needs(r, now, tenantsOf("b"))
	e.atOnce = 10
	if p := e.Next(); len(p.Projections) != 0 || e.Made(p, engine.LeftOut{}, nil) != nil {
		t.Errorf("projections %v", p.Projections)
	}
	if e.More() || e.atOnce != 10 {
		t.Errorf("more %v, rows at once %d", e.More(), e.atOnce)
	}
}

// In a new incarnation of the server, rows that were just made may be lost.
func TestRowsThatWereMadeInAnEarlierIncarnationAreMadeAgain(t *testing.T) {
	for _, known := range []bool{false, true} {
		r := fresh()
		if known && r.Seen(1) {
			t.Error("rows are lost in the first incarnation")
		}
		e, _ := needs(r, now, tenantsOf("a"))
		parts(e)
		if lost := r.Seen(2); lost != known {
			t.Errorf("known %v: rows are lost: %v", known, lost)
		}
		r.Ended(e, now, nil)
		if _, need := needs(r, now.Add(listAgain), tenantsOf("a")); (need == "a") != known {
			t.Errorf("known %v: rows for %q", known, need)
		}
	}
}

func TestTenantWhoseHookFailsIsTriedAgainLater(t *testing.T) {
	r := fresh()
	failure := engine.SwapFailure{ID: projection.ID{Tenant: "a", Name: "p"}, Err: errFault}
	fail := func(at time.Time) Report {
		e, need := needs(r, at, tenantsOf("a", "b"))
		if !strings.Contains(need, "a") {
			t.Fatalf("%v: rows for %q", at.Sub(now), need)
		}
		err := e.Made(e.Next(), engine.LeftOut{},
			&engine.SwapError{Tenants: map[string]engine.SwapFailure{"a": failure}})
		if err != nil {
			t.Error(err)
		}
		return r.Ended(e, at, nil)
	}
	report := fail(now)
	if report.Failed["a"] != failure || report.Unbegun["a"].Since != now || report.Unbegun["a"].Err != errFault {
		t.Errorf("report %+v", report)
	}
	early := now.Add(swapAgain - 1)
	e, need := needs(r, early, tenantsOf("a", "b"))
	if need != "" {
		t.Errorf("tried again at once: %q", need)
	}
	if report := r.Ended(e, early, nil); !report.Changed || len(report.Unbegun) != 1 || len(report.Failed) != 0 {
		t.Errorf("meanwhile the report is %+v", report)
	}
	r.ListAll()
	if report := fail(now.Add(swapAgain)); report.Unbegun["a"].Since != now {
		t.Errorf("it fails since %v", report.Unbegun["a"].Since)
	}
	at := now.Add(2 * swapAgain)
	e, need = needs(r, at, tenantsOf("a", "b"))
	if need != "a" {
		t.Errorf("rows for %q", need)
	}
	parts(e)
	if report := r.Ended(e, at, nil); !report.Changed || len(report.Unbegun) != 0 {
		t.Errorf("after it succeeded, the report is %+v", report)
	}
	if e, _ := needs(r, at.Add(listAgain), nil); r.Ended(e, at, nil).Changed {
		t.Error("a change is reported although no hook has failed")
	}
}

// While a hook fails, all tenants are listed in each search, as its tenant needs no notification.
func TestTenantsAreListedWhileAHookFails(t *testing.T) {
	r := fresh()
	e, _ := needs(r, now, tenantsOf("a"))
	_ = e.Made(e.Next(), engine.LeftOut{},
		&engine.SwapError{Tenants: map[string]engine.SwapFailure{"a": {Err: errFault}}})
	r.Ended(e, now, nil)
	c := Conditions{Interval: time.Minute}
	for range 2 {
		if e := r.Begin(now, c); e.Names != nil {
			t.Errorf("lists %q", e.Names)
		}
		now := now.Add(c.Interval / 2)
		if e := r.Begin(now, c); e.Names != nil {
			t.Errorf("an interval later, lists %q", e.Names)
		}
		r.ListAll()
	}
	e, _ = needs(r, now, nil) // the tenant was dropped
	e.removed = []string{"a"}
	if report := r.Ended(e, now, nil); !report.Changed || len(report.Unbegun) != 0 {
		t.Errorf("after the tenant was dropped, the report is %+v", report)
	}
}

func TestReasonWhyAProjectionDoesNotRunIsReportedOnce(t *testing.T) {
	r := fresh()
	left := engine.LeftOut{
		Retired: []*engine.Retired{{Tenant: "a", Name: "p"}, {Tenant: "b", Name: "p"}},
		Waiting: []engine.NewProjection{{Tenant: "a", Name: "q", RenamedFrom: "o"}},
	}
	end := func() []LeftOut {
		r.ListAll()
		e, _ := needs(r, now, tenantsOf("a", "b"))
		_ = e.Made(e.Next(), left, nil)
		return r.Ended(e, now, nil).LeftOut
	}
	got := end()
	slices.SortFunc(got, func(a, b LeftOut) int { return strings.Compare(a.Projection, b.Projection) })
	if len(got) != 2 || got[0].Projection != "p" || fmt.Sprint(got[0].Tenants) != "[a b]" ||
		got[0].Retired != left.Retired[0].What() || got[0].Earlier != "" || got[1].Projection != "q" ||
		got[1].Earlier != "o" || got[1].Retired != "" || fmt.Sprint(got[1].Tenants) != "[a]" {
		t.Errorf("reported %+v", got)
	}
	r.ensured = make(map[string]int32)
	if got := end(); len(got) != 0 {
		t.Errorf("reported again: %+v", got)
	}
}

func TestRenameIsCarriedOutOnceNoNodeRegistersTheEarlierName(t *testing.T) {
	member := func(tenants []string, names ...string) engine.Member {
		return engine.Member{ID: "other", Projections: names, Tenants: tenants}
	}
	for name, test := range map[string]struct {
		members []engine.Member
		want    string
	}{
		"no other node":                  {nil, "[{a o q}]"},
		"a node with the earlier name":   {[]engine.Member{member(nil, "o")}, "[]"},
		"a node with a version of it":    {[]engine.Member{member(nil, "x", "o@2")}, "[]"},
		"a node of other tenants":        {[]engine.Member{member([]string{"b"}, "o")}, "[{a o q}]"},
		"a node with the new name":       {[]engine.Member{member(nil, "q")}, "[{a o q}]"},
		"nodes with either of the names": {[]engine.Member{member(nil, "q"), member(nil, "o")}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fresh()
			e, _ := needs(r, now, tenantsOf("a", "b"))
			if len(e.Renames) != 0 {
				t.Errorf("renames before any waits: %v", e.Renames)
			}
			left := engine.LeftOut{Waiting: []engine.NewProjection{{Tenant: "a", Name: "q", RenamedFrom: "o"}}}
			_ = e.Made(e.Next(), left, nil)
			if !r.Ended(e, now, nil).Again {
				t.Error("no search follows that would carry the rename out")
			}
			e = r.Begin(now, Conditions{Members: test.members})
			if got := fmt.Sprint(e.Renames); got != test.want {
				t.Errorf("renames %s, want %s", got, test.want)
			}
			if e.Over() != (len(e.Renames) == 0) {
				t.Errorf("lists %q", e.Names)
			}
			if e.Over() {
				return
			}
			if n := len(e.RenamesAtOnce()); n != 1 {
				t.Errorf("%d transactions", n)
			}
			e.Listed(tenantsOf("a"), now)
			_ = e.Made(e.Next(), left, nil) // a node that was not listed registers it
			if r.Ended(e, now, nil).Again {
				t.Error("another search follows for a rename that waits already")
			}
			e = r.Begin(now, Conditions{})
			e.Listed(tenantsOf("a"), now)
			if made := parts(e); len(made) != 1 || made[0] != "a" {
				t.Errorf("rows for %q", made)
			}
			if r.Ended(e, now, nil).Again {
				t.Error("another search follows for a rename that was carried out")
			}
			if e := r.Begin(now, Conditions{}); len(e.Renames) != 0 {
				t.Errorf("once more: %v", e.Renames)
			}
		})
	}
}
