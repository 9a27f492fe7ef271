package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/projection"
)

const (
	ownID   = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	otherID = "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
	idleID  = "33333333-cccc-4ccc-8ccc-cccccccccccc"
	goneID  = "44444444-dddd-4ddd-8ddd-dddddddddddd"
)

func snapshot(names ...string) (s Snapshot) {
	for _, name := range names {
		s.Status.Projections = append(s.Status.Projections,
			admin.ProjectionStatus{ID: projection.ID{Tenant: projection.DefaultTenant, Name: name},
				State: admin.StateLive, Owner: ownID, Epoch: 2, Checkpoint: 11, Behind: 4, Skipped: 3})
	}
	s.Summary = admin.Summary{States: map[admin.State]int{admin.StateNotOwned: 1, admin.StateLive: 2},
		Nodes: []admin.NodeStatus{
			{ID: goneID, Silent: 2 * time.Minute},
			{ID: otherID, Leases: 1, Silent: 2 * time.Minute},
			{ID: ownID, Name: "web-1", Alive: true, Leases: 1, Silent: 400 * time.Millisecond},
			{ID: idleID, Alive: true, Draining: true, Silent: time.Second},
		}}
	return s
}

func TestStatusShowsLivingAndDeadNodes(t *testing.T) {
	t.Parallel()
	s := snapshot("payments", "streams")
	p := s.Status.Projections
	p[0].State, p[0].Owner, p[0].Epoch, p[0].Behind = admin.StateNotOwned, otherID, 3, 0
	p[1].FailingPosition, p[1].Attempts, p[1].Reason, p[1].Parked = 12, 3, "two\nlines", 1
	p[1].OwnerName, p[1].Lag, p[1].Rate = "web-1", 1500*time.Millisecond, 12.3
	got := strings.Join(s.Lines(0, false), "\n")
	want := strings.Join([]string{
		"projection  state      behind  parked  skipped   lag  rate  owner     checkpoint  epoch",
		"payments    node dead       0       0        3     -     -  22222222          11      3",
		"streams     live            4       1        3  1.5s  12/s  web-1             11      2",
		"streams, position 12, attempt 3: two; lines",
		"",
		"node      projections  state     last heartbeat  id",
		"22222222            1  dead      120.0 s ago     " + otherID,
		"web-1               1  alive     0.4 s ago       " + ownID,
		"33333333            0  draining  1.0 s ago       " + idleID,
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStatusShowsTenantsWhoseEventsWait(t *testing.T) {
	t.Parallel()
	s := snapshot("payments")
	s.Status.Tenants = []admin.TenantStatus{
		{
			Tenant: "acme", Mark: 7, Held: &admin.HeldMark{Below: 9,
				Holders: []string{"backend 4711", "prepared transaction -1/81"}},
		},
		{Tenant: "globex", Mark: 7},
		{Tenant: "umbrella", Reason: "locked\nby backend 4711"},
	}
	for what, lines := range map[string][]string{"status": s.Lines(0, false), "screen": s.Frame(200, 40, false),
		"small screen": s.Frame(100, 12, false)} {
		text := strings.Join(lines, "\n")
		for _, want := range []string{"tenant acme, events after position 7 wait for backend 4711, prepared transaction -1/81",
			"tenant umbrella, events cannot be read: locked; by backend 4711"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing:\n%s", what, want, text)
			}
		}
		if strings.Contains(text, "globex") {
			t.Errorf("%s: nothing is wrong with globex:\n%s", what, text)
		}
	}
}

func TestScreenOfEachSizeShowsStateParkedAndSkipped(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("注文の合計-%s-%d", strings.Repeat("long", i), i))
	}
	s := snapshot(names...)
	for i := range s.Status.Projections {
		s.Status.Projections[i].Parked = 1_000_000
	}
	worst := &s.Status.Projections[29]
	worst.State, worst.Reason, worst.Parked = admin.StateFailed, strings.Repeat("the reason is long ", 20), 7_654_321
	for _, width := range []int{60, 80, 200} {
		for _, height := range []int{6, 12, 24, 60} {
			frame := s.Frame(width, height, false)
			if len(frame) > height {
				t.Errorf("%d x %d: %d lines", width, height, len(frame))
			}
			text := strings.Join(frame, "\n")
			for _, want := range []string{"state", "parked", "skipped", "failed", "7654321"} {
				if !strings.Contains(text, want) {
					t.Errorf("%d x %d: %s is missing:\n%s", width, height, want, text)
				}
			}
			for _, line := range frame {
				if console.Width(line) > width {
					t.Errorf("%d x %d: %d columns: %s", width, height, console.Width(line), line)
				}
			}
		}
	}
}

func TestSnapshotThatCannotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	s := Snapshot{Err: errors.New("connection\nrefused")}
	if got := strings.Join(s.Frame(60, 10, false), "\n"); !strings.Contains(got,
		"the status cannot be read: connection; refused") {
		t.Error(got)
	}
}
