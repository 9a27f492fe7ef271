package millraceotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// gauges are the instruments that are read when metrics are collected.
type gauges struct {
	node       nodeGauges
	deployment deploymentGauges
}

// nodeGauges describe one node.
type nodeGauges struct {
	projections, lag, worst, parked, breakers metric.Int64ObservableGauge
	held, connected, abandoned                metric.Int64ObservableGauge
	lagTime, heldTime                         metric.Float64ObservableGauge
}

// deploymentGauges describe all nodes together.
type deploymentGauges struct {
	wanted, owned, unowned, parked, nodes, tenants metric.Int64ObservableGauge
	oldest, snapshot                               metric.Float64ObservableGauge
}

func newGauges(m *maker) gauges {
	return gauges{
		node: nodeGauges{
			projections: m.gauge("millrace.projection.count", "{projection}",
				"Projections that the node runs, by state. Each tenant and partition counts."),
			lag: m.gauge("millrace.projection.lag", "{event}",
				"Positions that the projections of the node are behind the settled marks, in total."),
			worst: m.gauge("millrace.projection.lag_max", "{event}",
				"Positions that the projection furthest behind is behind its settled mark."),
			lagTime: m.age("millrace.projection.lag_time", "Age of the oldest settled event that was not handled."),
			parked: m.gauge("millrace.projection.parked", "{event}",
				"Parked events of the projections that the node runs."),
			breakers: m.gauge("millrace.breaker.count", "{breaker}",
				"Circuit breakers of the projections that the node runs, by state."),
			held: m.gauge("millrace.settle.held", "{tenant}",
				"Tenants of the node whose settled mark is held back or whose events cannot be read."),
			heldTime: m.age("millrace.settle.held_time",
				"Time for which the first of these tenants has been held back."),
			connected: m.gauge("millrace.session.connected", "{connection}",
				"Session connections of the node: 1, or 0 while it has none."),
			abandoned: m.gauge("millrace.handler.abandoned", "{handler}",
				"Handlers of the process that did not return when they were cancelled."),
		},
		deployment: deploymentGauges{
			wanted: m.gauge("millrace.lease.wanted", "{lease}",
				"Leases of projections that should run, on all nodes."),
			owned: m.gauge("millrace.lease.owned", "{lease}", "Leases that living nodes hold."),
			unowned: m.gauge("millrace.lease.unowned", "{lease}",
				"Leases that no living node holds although their projections should run, by reason."),
			parked: m.gauge("millrace.dead_letter.parked", "{event}", "Parked events of all projections."),
			oldest: m.age("millrace.dead_letter.oldest",
				"Time since the oldest parked event failed first, 0 if none is parked."),
			nodes:   m.gauge("millrace.node.count", "{node}", "Nodes by state: alive, draining or dead."),
			tenants: m.gauge("millrace.tenant.count", "{tenant}", "Tenants by state."),
			snapshot: m.age("millrace.database.oldest_snapshot",
				"Age of the oldest transaction that keeps dead rows from being cleaned up."),
		},
	}
}

// WatchNode reports the gauges of a runtime whenever metrics are collected, until stop is called. They come from
// memory, so they are available while the database is down. While the runtime is not running, nothing is reported. A
// Telemetry watches one runtime at a time: see Options.Attributes.
func (t *Telemetry) WatchNode(r *millrace.Runtime) (stop func() error, err error) {
	if r == nil {
		return nil, errors.New("watch the node: the runtime is nil")
	}
	g := &t.gauges.node
	stop, err = t.watch(&t.ofNode, func(_ context.Context, o metric.Observer) error {
		stats := r.Stats
		if t.tenants {
			stats = r.StatsByTenant
		}
		t.observeNode(o, stats())
		return nil
	}, g.projections, g.lag, g.worst, g.lagTime, g.parked, g.breakers, g.held, g.heldTime, g.connected, g.abandoned)
	if err != nil {
		return nil, fmt.Errorf("watch the node: %w", err)
	}
	return stop, nil
}

func (t *Telemetry) observeNode(o metric.Observer, s millrace.Stats) {
	if s.Node == "" {
		return
	}
	g := &t.gauges.node
	connected := int64(0)
	if s.Connected {
		connected = 1
	}
	o.ObserveInt64(g.connected, connected)
	o.ObserveInt64(g.abandoned, s.Abandoned)
	o.ObserveInt64(g.held, int64(s.HeldTenants))
	o.ObserveFloat64(g.heldTime, s.LongestHeld.Seconds())
	for _, p := range s.Projections {
		of := t.of(p.Tenant, p.Name)
		o.ObserveInt64(g.lag, p.Behind, of)
		o.ObserveInt64(g.worst, p.MostBehind, of)
		o.ObserveFloat64(g.lagTime, p.Lag.Seconds(), of)
		o.ObserveInt64(g.parked, p.Parked, of)
		// All states are reported, also with 0, so that an alert sees that a state has ended.
		for _, state := range nodeStates {
			o.ObserveInt64(g.projections, int64(p.States[state]),
				t.of(p.Tenant, p.Name, keyState.String(string(state))))
		}
		if len(p.Breakers) == 0 {
			continue
		}
		for _, state := range breakerStates {
			o.ObserveInt64(g.breakers, int64(p.Breakers[state]), t.of(p.Tenant, p.Name, keyState.String(string(state))))
		}
	}
}

// nodeStates are the states of projections that a node runs.
var nodeStates = []admin.State{admin.StateStarting, admin.StateCatchUp, admin.StateLive, admin.StateWaiting,
	admin.StateMissingObject, admin.StateFailed}

var breakerStates = []projection.BreakerState{
	projection.BreakerClosed, projection.BreakerOpen, projection.BreakerHalfOpen,
}

// summaryTimeout limits the statements of one collection. Collectors wait some 10 s, and the other metrics must arrive.
const summaryTimeout = 3 * time.Second

// WatchDeployment reports the gauges of the whole deployment whenever metrics are collected, until stop is called. Each
// collection sends the few statements of Admin.Summary. One process is enough, since all processes report the same
// values. While the database cannot be used, nothing is reported.
func (t *Telemetry) WatchDeployment(a *admin.Admin) (stop func() error, err error) {
	if a == nil {
		return nil, errors.New("watch the deployment: the Admin is nil")
	}
	g := &t.gauges.deployment
	stop, err = t.watch(&t.ofDeployment, func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
		defer cancel()
		summary, err := a.Summary(ctx)
		if err != nil {
			return err
		}
		t.observeDeployment(o, summary)
		return nil
	}, g.wanted, g.owned, g.unowned, g.parked, g.oldest, g.nodes, g.tenants, g.snapshot)
	if err != nil {
		return nil, fmt.Errorf("watch the deployment: %w", err)
	}
	return stop, nil
}

func (t *Telemetry) observeDeployment(o metric.Observer, s admin.Summary) {
	g := &t.gauges.deployment
	owned := 0
	nodes := map[string]int{"alive": 0, "draining": 0, "dead": 0}
	for _, n := range s.Nodes {
		switch {
		case !n.Alive:
			nodes["dead"]++
			continue
		case n.Draining:
			nodes["draining"]++
		default:
			nodes["alive"]++
		}
		owned += n.Leases
	}
	for state, n := range nodes {
		o.ObserveInt64(g.nodes, int64(n), ofState(state))
	}
	for state, n := range s.Tenants {
		o.ObserveInt64(g.tenants, int64(n), ofState(string(state)))
	}
	o.ObserveInt64(g.owned, int64(owned))
	o.ObserveInt64(g.wanted, int64(owned+s.States[admin.StateNotOwned]+s.States[admin.StateUnregistered]))
	o.ObserveInt64(g.unowned, int64(s.NotOwned), metric.WithAttributes(keyReason.String("not run")))
	o.ObserveInt64(g.unowned, int64(s.Unregistered), metric.WithAttributes(keyReason.String("unregistered")))
	o.ObserveInt64(g.parked, s.Parked)
	age := 0.0
	if !s.OldestParked.IsZero() {
		age = max(0, time.Since(s.OldestParked).Seconds())
	}
	o.ObserveFloat64(g.oldest, age)
	o.ObserveFloat64(g.snapshot, s.OldestSnapshot.Seconds())
}

// keyReason names why no node holds the lease of a projection.
const keyReason = attribute.Key("millrace.reason")

func ofState(state string) metric.MeasurementOption {
	return metric.WithAttributes(keyState.String(state))
}
