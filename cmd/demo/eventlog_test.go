package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
)

const (
	ownID   = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	otherID = "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
)

// held returns a status with two projections, their owners and epochs.
func held(node, first string, firstEpoch int64, second string, secondEpoch int64) admin.Status {
	one := func(name, owner string, epoch int64) admin.ProjectionStatus {
		return admin.ProjectionStatus{
			ID: millrace.ProjectionID{Tenant: "default", Name: name}, Owner: owner, Epoch: epoch,
			State: admin.StateLive,
		}
	}
	return admin.Status{
		Node: node, Projections: []admin.ProjectionStatus{one("payments", first, firstEpoch),
			one("streams", second, secondEpoch)},
	}
}

func TestEventLogSaysOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newEventLog("process 7", now)
	broken := errors.New("broken\npipe")
	failing := held(ownID, ownID, 6, ownID, 4)
	failing.Projections[1].FailingPosition, failing.Projections[1].Attempts, failing.Projections[1].Reason = 12, 3,
		"two\nlines"
	for i, step := range []struct {
		status admin.Status
		err    error
		want   []string
	}{
		{held("", "", 0, otherID, 1), nil, nil}, // it has not started
		{held(ownID, ownID, 1, otherID, 1), nil, []string{"node 11111111 (" + ownID + "), process 7",
			"claimed: payments (epoch 1)", "runs 1 of 2 now: payments"}},
		{held(ownID, ownID, 1, otherID, 1), nil, nil},
		{
			held(ownID, ownID, 1, ownID, 2), nil, []string{"took over from 22222222: streams (epoch 2)",
				"runs 2 of 2 now: payments, streams"},
		},
		{admin.Status{}, broken, []string{"the status cannot be read: broken; pipe"}},
		{admin.Status{}, broken, nil},
		{held(ownID, otherID, 3, ownID, 3), nil, []string{"the status can be read again",
			"taken over by 22222222: payments (epoch 3)",
			"claimed again: streams (epoch 3)", "runs 1 of 2 now: streams"}},
		{held(ownID, otherID, 3, "", 3), nil, []string{"released: streams (epoch 3)", "runs nothing now"}},
		{held(ownID, ownID, 6, ownID, 4), nil, []string{"took over from 22222222: payments (epoch 6)",
			"claimed: streams (epoch 4)",
			"runs 2 of 2 now: payments, streams"}},
		{failing, nil, []string{"streams, position 12, attempt 3: two; lines"}},
		{failing, nil, nil},
		// it has ended
		{held("", "", 6, "", 4), nil, []string{"released: payments (epoch 6), streams (epoch 4)", "runs nothing now"}},
	} {
		if got := l.lines(now, step.status, step.err); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(step.want, "\n"))
		}
	}
}

func TestEventLogNamesTheOwnerThatItStandsByFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newEventLog("process 7", now)
	l.standsBy = true
	elsewhere := func(owner string, epoch int64) admin.Status { return held(ownID, owner, epoch, owner, epoch) }
	dead := held(ownID, otherID, 1, otherID, 1) // before the first claim of a node that is no standby
	dead.Projections[0].State, dead.Projections[1].State = admin.StateNotOwned, admin.StateNotOwned
	for i, step := range []struct {
		status admin.Status
		want   []string
	}{
		{dead, []string{"node 11111111 (" + ownID + "), process 7"}},
		{elsewhere(otherID, 2), []string{"stands by until node 22222222 ends"}},
		{elsewhere(otherID, 2), nil},
		{
			held(ownID, ownID, 3, otherID, 2), []string{"took over from 22222222: payments (epoch 3)",
				"runs 1 of 2 now: payments"},
		},
	} {
		if got := l.lines(now, step.status, nil); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(step.want, "\n"))
		}
	}
}

func TestEventLogHasRatesOfItsNode(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := newEventLog("", start)
	applied := func(payments, streams int64) admin.Status {
		s := held(ownID, ownID, 1, ownID, 1)
		s.Projections[0].Applied, s.Projections[1].Applied = payments, streams
		return s
	}
	l.lines(start, applied(0, 0), nil)
	for _, step := range []struct {
		after             time.Duration
		payments, streams int64
		want              string
	}{
		{time.Second, 10, 100, ""}, // too early
		{4 * time.Second, 40, 400, "applied 110 events/s: payments 10, streams 100"},
		{8 * time.Second, 40, 400, ""},
		{12 * time.Second, 0, 440, "applied 10 events/s: streams 10"}, // payments runs elsewhere
		{16 * time.Second, 60, 440, "applied 5 events/s: payments 5"}, // and is back
	} {
		if got := strings.Join(l.lines(start.Add(step.after), applied(step.payments, step.streams), nil),
			"\n"); got != step.want {
			t.Errorf("after %v: got %q, want %q", step.after, got, step.want)
		}
	}
}
