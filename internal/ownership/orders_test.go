package ownership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
)

func leaseOf(row int32, epoch int64) engine.Lease {
	return engine.Lease{Row: row, Epoch: epoch, Owner: "a", Desired: engine.WantRun}
}

// said returns effects as texts, in order.
func said(effects []Effect) string {
	texts := make([]string, len(effects))
	for i, e := range effects {
		texts[i] = fmt.Sprintf("%s %s", e.Action, text(e.Key))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// ordered returns a table with the leases 1 to 4 that run, 5 that drains and 6 that is released.
func ordered() (*Table, *Search) {
	t := NewTable()
	for row := range int32(6) {
		t.Claimed([]engine.Lease{leaseOf(row+1, 1)})
	}
	t.Drain(5)
	t.Drained(engine.Advance{Lease: leaseOf(6, 1)})
	return t, new(Search)
}

func (o *Orders) next(t *Table, s *Search) string {
	rows := o.Next(t, s)
	slices.Sort(rows)
	return fmt.Sprint(rows)
}

func TestOrdersOfNotifiedRowsAreRead(t *testing.T) {
	table, s := ordered()
	var o Orders
	if rows := o.next(table, s); rows != "[]" {
		t.Errorf("without a notification, %v are read", rows)
	}
	for _, row := range []int32{1, 2, 5, 6, 9} {
		o.Notified(engine.Notice{Row: row})
	}
	o.Notified(engine.Notice{Row: 3, Commanded: true})
	if rows := o.next(table, s); rows != "[1 2 3 5 6]" {
		t.Errorf("%v are read", rows)
	}
	o.Notified(engine.Notice{Row: 4})
	if rows := o.next(table, s); rows != "[]" {
		t.Errorf("%v are read while a read is in progress", rows)
	}
	got := said(o.Read(table, map[int32]engine.Orders{
		1: {Desired: engine.WantPause}, 3: {Desired: engine.WantRun, HasCommands: true},
		5: {Desired: engine.WantRun, HasCommands: true},
	}))
	if got != "command 3@1, drain 1@1, resume 2@1" {
		t.Errorf("the effects are %s", got)
	}
	if rows := o.next(table, s); rows != "[4]" {
		t.Errorf("then %v are read", rows)
	}
	if rows := o.Read(table, nil); len(rows) != 1 || o.next(table, s) != "[]" {
		t.Errorf("effects %v, and more to read", rows)
	}
}

// A search may be claiming the lease for which the notification comes.
func TestNotificationDuringASearchIsKept(t *testing.T) {
	table, s := ordered()
	var o Orders
	s.Begin(now)
	o.Notified(engine.Notice{Row: 9})
	if rows := o.next(table, s); rows != "[]" {
		t.Errorf("%v are read", rows)
	}
	table.Claimed([]engine.Lease{leaseOf(9, 1)})
	s.Ended(Result{})
	if rows := o.next(table, s); rows != "[9]" {
		t.Errorf("after the claim, %v are read", rows)
	}
	o.Read(table, nil)
	o.Notified(engine.Notice{Row: 10})
	o.next(table, s) // no search is in progress
	table.Claimed([]engine.Lease{leaseOf(10, 1)})
	if rows := o.next(table, s); rows != "[]" {
		t.Errorf("a notification before the claim was kept: %v", rows)
	}
}

func TestOrdersThatCouldNotBeReadAreReadAgain(t *testing.T) {
	table, s := ordered()
	var o Orders
	o.Notified(engine.Notice{Row: 1})
	o.Notified(engine.Notice{Row: 2, Commanded: true})
	o.Notified(engine.Notice{Row: 3, Commanded: true})
	o.Next(table, s)
	o.Notified(engine.Notice{Row: 1, Commanded: true})
	o.Notified(engine.Notice{Row: 2})
	o.Failed()
	if rows := o.next(table, s); rows != "[1 2 3]" {
		t.Errorf("%v are read", rows)
	}
	if got := said(o.Read(table, nil)); got != "resume 1@1, resume 2@1" {
		t.Errorf("the effects are %s", got)
	}
}

func TestLeasesThatWereReadAreCheckedAgainstTheTable(t *testing.T) {
	table, _ := ordered()
	keys := table.KeysOf(map[string]bool{"": true})
	table.Lost(engine.LeaseKey{Row: 4, Epoch: 1}) // during the read
	table.Claimed([]engine.Lease{leaseOf(4, 2)})
	other, paused := leaseOf(2, 1), leaseOf(3, 1)
	other.Owner, paused.Desired = "b", engine.WantPause
	// 1 is the node's, 5 does not exist any more, and 6 is being released.
	effects, lost := table.Check("a", keys, []engine.Lease{leaseOf(1, 1), other, paused})
	if got := said(effects); got != "drain 3@1, retire 2@1, retire 5@1" {
		t.Errorf("the effects are %s", got)
	}
	var rows []int32
	for _, l := range lost {
		rows = append(rows, l.Row)
	}
	slices.Sort(rows)
	if !slices.Equal(rows, []int32{2, 5}) {
		t.Errorf("lost are %v", rows)
	}
	if effects, lost := table.Check("a", []engine.LeaseKey{{Row: 1, Epoch: 1}},
		[]engine.Lease{leaseOf(1, 2)}); said(effects) != "retire 1@1" || len(lost) != 1 {
		t.Errorf("a lease of a later epoch: %s, lost %v", said(effects), lost)
	}
}

func TestPausedLeaseThatWasReadIsDrained(t *testing.T) {
	table, _ := ordered()
	paused := func(row int32, epoch int64) engine.Lease {
		l := leaseOf(row, epoch)
		l.Desired = engine.WantPause
		return l
	}
	for want, lease := range map[string]engine.Lease{
		"": leaseOf(1, 1), "drain 1@1": paused(1, 1),
	} {
		if got := said(table.Seen(lease)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// of another epoch, draining, and of another node
	for _, lease := range []engine.Lease{paused(2, 2), paused(5, 1), paused(9, 1)} {
		if got := said(table.Seen(lease)); got != "" {
			t.Errorf("row %d, epoch %d: %s", lease.Row, lease.Epoch, got)
		}
	}
}
