package millrace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
)

// notReady returns what has kept a runtime from working for longer than patience.
func notReady(v actors.Vitals, patience time.Duration) (reasons []string) {
	long := func(since time.Time) bool { return !since.IsZero() && time.Since(since) >= patience }
	s := v.Session
	switch {
	case s.HeartbeatSent.IsZero():
		return []string{because("the node is not registered yet", s.Err)}
	case long(s.HeartbeatSent):
		reasons = append(reasons, because(fmt.Sprintf("no heartbeat for %v", time.Since(s.HeartbeatSent).Round(time.Second)), s.Err))
	}
	if long(s.PoolFailing) {
		reasons = append(reasons, fmt.Sprintf("the connection pool has not worked for %v", time.Since(s.PoolFailing).Round(time.Second)))
	}
	switch {
	case s.Claims == 0:
		reasons = append(reasons, because("free leases were not searched for yet", s.ClaimErr))
	case long(s.ClaimFailing):
		reasons = append(reasons, because(fmt.Sprintf("leases cannot be claimed for %v", time.Since(s.ClaimFailing).Round(time.Second)), s.ClaimErr))
	}
	if n := len(v.Unreadable); n > 0 && n == v.Feeds && long(slices.MaxFunc(slices.Collect(maps.Values(v.Unreadable)), time.Time.Compare)) {
		reasons = append(reasons, "the events of no tenant can be read: "+reasonOf(v.Held))
	}
	return reasons
}

// degradedHere returns what needs attention on this node.
func degradedHere(v actors.Vitals) (reasons []string) {
	s := v.Session
	if !s.Connected && !s.HeartbeatSent.IsZero() {
		reasons = append(reasons, because("the session connection is lost", s.Err))
	}
	if s.ClaimErr != nil {
		reasons = append(reasons, because("the last search for leases failed", s.ClaimErr))
	}
	for _, about := range []struct {
		ids  []ProjectionID
		what string
	}{{v.Failed, "failed projections"}, {v.Missing, "projections that wait for a missing object"}, {v.Open, "projections with an open circuit breaker"}} {
		if len(about.ids) > 0 {
			reasons = append(reasons, about.what+": "+namesOf(about.ids))
		}
	}
	if n := len(v.StandingStill); n > 0 {
		first := v.StandingStill[0]
		reasons = append(reasons, fmt.Sprintf("projections that do not move although events wait: %d, the first %s", n,
			Standstill{ID: first.ID, Since: first.Since, Reason: first.Reason}))
	}
	held := slices.DeleteFunc(slices.Clone(v.Held), func(h engine.HeldTenant) bool { return time.Since(h.Since) < heldLong })
	for i, h := range held {
		if i == namesMost {
			reasons = append(reasons, fmt.Sprintf("%d more tenants are held back", len(held)-i))
			break
		}
		reasons = append(reasons, heldReason(heldTenant(h), h.Since))
	}
	return reasons
}

// reasonOf returns why the events of the first of these tenants cannot be read.
func reasonOf(held []engine.HeldTenant) string {
	if i := slices.IndexFunc(held, func(h engine.HeldTenant) bool { return h.Reason != "" }); i >= 0 {
		return held[i].Reason
	}
	return "unknown"
}

// because adds the cause to a reason.
func because(reason string, cause error) string {
	if cause == nil {
		return reason
	}
	return reason + ": " + cause.Error()
}

// shortReasons cuts long texts.
func shortReasons(reasons []string) []string {
	for i, reason := range reasons {
		reasons[i] = excerpt.UpTo(reason, reasonMost)
	}
	return reasons
}

// namesOf returns the first of these projections.
func namesOf(ids []ProjectionID) string {
	var names []string
	for _, id := range ids[:min(namesMost, len(ids))] {
		names = append(names, id.String())
	}
	if more := len(ids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
