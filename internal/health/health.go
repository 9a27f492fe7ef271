// Package health says what keeps a runtime from working, by the vitals of its actors, and what a person should look at.
package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// HeldLong is how long a settled mark may be held back before that is reported.
const HeldLong = 30 * time.Second

// namesMost is how many projections or tenants a reason names, and reasonMost how many bytes a reason has.
const namesMost, reasonMost = 3, 500

// NotReady returns what has kept a runtime from working for longer than patience.
func NotReady(v actors.Vitals, patience time.Duration) (reasons []string) {
	long := func(since time.Time) bool { return !since.IsZero() && time.Since(since) >= patience }
	s := v.Session
	switch {
	case s.HeartbeatSent.IsZero():
		return []string{Because("the node is not registered yet", s.Err)}
	case long(s.HeartbeatSent):
		reasons = append(reasons,
			Because(fmt.Sprintf("no heartbeat for %v", time.Since(s.HeartbeatSent).Round(time.Second)), s.Err))
	}
	if long(s.PoolFailing) {
		reasons = append(reasons, fmt.Sprintf("the connection pool has not worked for %v",
			time.Since(s.PoolFailing).Round(time.Second)))
	}
	switch {
	case s.Claims == 0:
		reasons = append(reasons, Because("free leases were not searched for yet", s.ClaimErr))
	case long(s.ClaimFailing):
		reasons = append(reasons,
			Because(fmt.Sprintf("leases cannot be claimed for %v", time.Since(s.ClaimFailing).Round(time.Second)),
				s.ClaimErr))
	}
	if n := len(v.Unreadable); n > 0 && n == v.Feeds &&
		long(slices.MaxFunc(slices.Collect(maps.Values(v.Unreadable)), time.Time.Compare)) {
		reasons = append(reasons, "the events of no tenant can be read: "+reasonOf(v.Held))
	}
	return reasons
}

// Degraded returns what needs attention on this node.
func Degraded(v actors.Vitals) (reasons []string) {
	s := v.Session
	if !s.Connected && !s.HeartbeatSent.IsZero() {
		reasons = append(reasons, Because("the session connection is lost", s.Err))
	}
	if s.ClaimErr != nil {
		reasons = append(reasons, Because("the last search for leases failed", s.ClaimErr))
	}
	for _, about := range []struct {
		ids  []projection.ID
		what string
	}{{v.Failed, "failed projections"}, {v.Missing, "projections that wait for a missing object"},
		{v.Open, "projections with an open circuit breaker"}} {
		if len(about.ids) > 0 {
			reasons = append(reasons, about.what+": "+namesOf(about.ids))
		}
	}
	if n := len(v.StandingStill); n > 0 {
		first := v.StandingStill[0]
		reasons = append(reasons, fmt.Sprintf("projections that do not move although events wait: %d, the first %s", n,
			Standstill(first.ID, first.Since, first.Reason)))
	}
	held := slices.DeleteFunc(slices.Clone(v.Held),
		func(h engine.HeldTenant) bool { return time.Since(h.Since) < HeldLong })
	for i, h := range held {
		if i == namesMost {
			reasons = append(reasons, fmt.Sprintf("%d more tenants are held back", len(held)-i))
			break
		}
		reasons = append(reasons, Held(h))
	}
	return reasons
}

// Held says what keeps the settled mark of a tenant from moving. It leaves out for how long if h.Since is zero.
func Held(h engine.HeldTenant) string {
	lasts := ""
	if !h.Since.IsZero() {
		lasts = fmt.Sprintf(" for %v", time.Since(h.Since).Round(time.Second))
	}
	if h.Held == nil {
		return fmt.Sprintf("the events of tenant %s cannot be read%s: %s", h.Tenant, lasts, h.Reason)
	}
	return fmt.Sprintf("the settled mark of tenant %s is held back below %d%s by %s", h.Tenant, h.Held.Below, lasts,
		strings.Join(h.Held.Holders, ", "))
}

// Standstill says which projection stands still, for how long, and why.
func Standstill(id projection.ID, since time.Time, reason string) string {
	return fmt.Sprintf("%s for %v: %s", id, time.Since(since).Round(time.Second), reason)
}

// reasonOf returns why the events of the first of these tenants cannot be read.
func reasonOf(held []engine.HeldTenant) string {
	if i := slices.IndexFunc(held, func(h engine.HeldTenant) bool { return h.Reason != "" }); i >= 0 {
		return held[i].Reason
	}
	return "unknown"
}

// Because adds the cause to a reason.
func Because(reason string, cause error) string {
	if cause == nil {
		return reason
	}
	return reason + ": " + cause.Error()
}

// Short cuts long texts.
func Short(reasons []string) []string {
	for i, reason := range reasons {
		reasons[i] = excerpt.UpTo(reason, reasonMost)
	}
	return reasons
}

// namesOf returns the first of these projections.
func namesOf(ids []projection.ID) string {
	var names []string
	for _, id := range ids[:min(namesMost, len(ids))] {
		names = append(names, id.String())
	}
	if more := len(ids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
