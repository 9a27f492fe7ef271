package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

func TestLeaseIsLostToAnotherOwnerEpochOrProjection(t *testing.T) {
	mine := Lease{Row: 1, ID: projection.ID{Tenant: "t", Name: "p"}, Owner: "n", Epoch: 3}
	for want, change := range map[string]func(l *Lease) bool{
		"":                             func(l *Lease) bool { l.Checkpoint = 9; return true },
		"the projection was removed":   func(l *Lease) bool { return false },
		"t/p: the projection was":      func(l *Lease) bool { l.ID.Name = "other"; return true },
		`"o" holds it under epoch 3`:   func(l *Lease) bool { l.Owner = "o"; return true },
		`"n" holds it under epoch 4: `: func(l *Lease) bool { l.Epoch++; return true },
	} {
		now := mine
		exists := change(&now)
		err := mine.Check(now, exists)
		if want == "" && err != nil || want != "" &&
			(!errors.Is(err, projection.ErrLeaseLost) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAttemptsBelongToTheirEvent(t *testing.T) {
	l := Lease{FailingPosition: 7, Attempts: 2, CrashPosition: 8, CrashAttempts: 3}
	if l.AttemptsAt(7) != 2 || l.AttemptsAt(8) != 0 || l.CrashAttemptsAt(8) != 3 || l.CrashAttemptsAt(7) != 0 {
		t.Error("attempts are counted for another event")
	}
}

func TestQuarantineAfterThreeCrashesOrOneAtAKnownEvent(t *testing.T) {
	for _, test := range []struct {
		lease                 Lease
		crashing, quarantined bool
	}{
		{Lease{CrashCount: 2}, false, false},
		{Lease{CrashCount: 3}, false, true},
		{Lease{Checkpoint: 4, CrashPosition: 5, CrashAttempts: 1}, true, true},
		{Lease{Checkpoint: 4, CrashPosition: 5}, false, false},
		{Lease{Checkpoint: 5, CrashPosition: 5, CrashAttempts: 1}, false, false},
	} {
		if test.lease.Crashing() != test.crashing || test.lease.Quarantined() != test.quarantined {
			t.Errorf("%+v: crashing %v, quarantined %v", test.lease, test.lease.Crashing(), test.lease.Quarantined())
		}
	}
}

func TestEventIsDeadlyAfterMoreThanThreeCrashesAndItsLastAttempt(t *testing.T) {
	for _, test := range []struct {
		crashes, most int
		want          bool
	}{{3, 1, false}, {4, 1, true}, {4, 4, true}, {4, 5, false}, {5, 5, true}} {
		l := Lease{CrashPosition: 5, CrashAttempts: test.crashes}
		if got := l.Deadly(5, projection.RetryPolicy{MaxAttempts: test.most}); got != test.want {
			t.Errorf("%d crashes of at most %d attempts: %v", test.crashes, test.most, got)
		}
	}
	if (Replay{Begun: 2}).Deadly() || !(Replay{Begun: 3}).Deadly() {
		t.Error("a replay is not given up after two owners that ended at it")
	}
}

func TestOnlyAPausedProjectionDoesNotRun(t *testing.T) {
	if !WantRun.Runs() || !DesiredState("").Runs() || WantPause.Runs() {
		t.Error("a desired state is misread")
	}
}

func TestRoomForDeadLetters(t *testing.T) {
	for _, test := range []struct{ most, parked, want int64 }{{3, 1, 2}, {3, 3, 0}, {3, 4, 0}, {0, 0, 0},
		{-1, 1 << 40, 1<<63 - 1}} {
		if got := (Policy{MaxParked: test.most}).Room(test.parked); got != test.want {
			t.Errorf("room for %d with %d of %d", got, test.parked, test.most)
		}
		if got := (Policy{MaxBlocked: test.most}).BlockedRoom(test.parked); got != test.want {
			t.Errorf("room for %d more blocked events with %d of %d", got, test.parked, test.most)
		}
	}
}

func TestMemberKnowsItsProjectionsOfItsTenants(t *testing.T) {
	some, all := Member{Projections: []string{"p"}, Tenants: []string{"a", ""}}, Member{Projections: []string{"p"}}
	if !some.Knows("a", "p") || !some.Knows("default", "p") || !some.Knows("", "p") || some.Knows("b", "p") ||
		some.Knows("a", "q") {
		t.Error("a member with tenants knows the wrong ones")
	}
	if !all.Knows("b", "p") || all.Knows("b", "q") {
		t.Error("a member without tenants does not know all")
	}
}

func TestDefinitionConcernsItsTypes(t *testing.T) {
	some := &Definition{Types: []string{"a", "b"}}
	if !some.Concerns("b") || some.Concerns("c") || !(&Definition{}).Concerns("c") {
		t.Error("a definition concerns the wrong types")
	}
}

func TestKnownActions(t *testing.T) {
	for _, a := range []projection.Action{projection.ActionPark, projection.ActionRetry, projection.ActionSkip,
		projection.ActionStop, projection.ActionParkStream} {
		if !KnownAction(a) {
			t.Errorf("%v is not known", a)
		}
	}
	if KnownAction(projection.ActionParkStream-1) || KnownAction(projection.ActionPark+1) {
		t.Error("an unknown action is known")
	}
}

func TestBatchIsAloneWithoutParkedEventsBeforeIt(t *testing.T) {
	at := func(positions ...int64) (all []event.Envelope) {
		for _, p := range positions {
			all = append(all, event.Envelope{Position: p})
		}
		return all
	}
	for _, test := range []struct {
		events, blocked []event.Envelope
		want            bool
	}{{at(5), nil, true}, {at(5), at(6, 7), true}, {at(5), at(4, 6), false}, {at(5, 6), nil, false},
		{nil, at(4), false}} {
		if got := (Batch{Events: test.events, BlockedByStream: test.blocked}).Alone(); got != test.want {
			t.Errorf("%d events and %d blocked: alone is %v", len(test.events), len(test.blocked), got)
		}
	}
}
