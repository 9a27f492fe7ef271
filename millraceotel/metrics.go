package millraceotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// metrics are the instruments of what an observer gets.
type metrics struct {
	batches  batchMetrics
	failures failureMetrics
	node     nodeMetrics
}

type batchMetrics struct {
	duration, queued, latency metric.Float64Histogram
	events                    metric.Int64Histogram
	applied, bytes            metric.Int64Counter
}

type failureMetrics struct {
	failures, parked, skipped, stops, replays, breakers metric.Int64Counter
}

type nodeMetrics struct {
	leases, reads, sessions, restarts, waits      metric.Int64Counter
	waited                                        metric.Float64Counter
	hold, wake, read, slot, disconnected, outages metric.Float64Histogram
}

func newMetrics(m *maker) metrics {
	return metrics{
		batches: batchMetrics{
			duration: m.seconds("millrace.batch.duration",
				"Time that batches and deliveries took after they got their slots.", work),
			queued: m.seconds("millrace.batch.queue_time", "Time that batches and deliveries waited for their slots.",
				work),
			latency: m.seconds("millrace.event.latency",
				"Time from the append of the oldest event of a batch to the end of the batch, for projections that are not catching up.", ages),
			events:  m.sizes("millrace.batch.events", "{event}", "Events of a batch or a delivery."),
			applied: m.counter("millrace.event.applied", "{event}", "Events that were handled."),
			bytes:   m.counter("millrace.event.size", "By", "Approximate size of the events that handlers got."),
		},
		failures: failureMetrics{
			failures: m.counter("millrace.event.failures", "{failure}", "Failures that were counted against events."),
			parked:   m.counter("millrace.event.parked", "{event}", "Events that were parked."),
			skipped:  m.counter("millrace.event.skipped", "{event}", "Events that were skipped."),
			stops: m.counter("millrace.projection.stops", "{stop}",
				"Projections that stopped until they are resumed."),
			replays:  m.counter("millrace.dead_letter.replays", "{replay}", "Replays of dead letters."),
			breakers: m.counter("millrace.breaker.changes", "{change}", "Changes of the states of circuit breakers."),
		},
		node: nodeMetrics{
			leases: m.counter("millrace.lease.changes", "{change}",
				"Leases that this node claimed, took over from dead nodes, released or lost."),
			reads: m.counter("millrace.feed.events", "{event}",
				"New events that feeds read or got from appends of the same process, once for all projections of a tenant."),
			sessions: m.counter("millrace.session.changes", "{change}",
				"Session connections that were made, made again, or lost."),
			restarts: m.counter("millrace.actor.restarts", "{restart}",
				"Actors that were restarted after a panic, or because they made no progress."),
			waits: m.counter("millrace.connection.waits", "{wait}", "Waits for connections of the store."),
			waited: m.total("millrace.connection.wait_time",
				"Time of the waits that ended with a connection, in total."),
			hold: m.seconds("millrace.settle.wait_time",
				"Time for which open transactions held back the settled mark of a tenant.", ages),
			wake: m.seconds("millrace.feed.wake_latency", "Time from a wake-up to the read of the new events.",
				short),
			read: m.seconds("millrace.feed.read.duration", "Time that feeds took to read new events.", work),
			slot: m.seconds("millrace.slot.wait_time",
				"Time that work waited for a slot, for work that had to wait.", work),
			disconnected: m.seconds("millrace.session.disconnected_time",
				"Time that the node was without a session connection, at each reconnect.", ages),
			outages: m.seconds("millrace.database.outage_time",
				"Time for which the database could not be used, at the end of each outage.", ages),
		},
	}
}

// Observer returns the callbacks for Config.Observer. Use observe.Join to add others.
func (t *Telemetry) Observer() observe.Observer {
	return observe.Observer{
		BatchEnded:        t.batchEnded,
		EventFailed:       t.eventFailed,
		Decided:           t.decided,
		Replayed:          t.replayed,
		BreakerChanged:    t.breakerChanged,
		LeaseChanged:      t.leaseChanged,
		MarkHeld:          t.markHeld,
		EventsRead:        t.eventsRead,
		SlotWaited:        t.slotWaited,
		ConnectionsWaited: t.connectionsWaited,
		SessionChanged:    t.sessionChanged,
		DatabaseChanged:   t.databaseChanged,
		ActorRestarted:    t.actorRestarted,
	}
}

func (t *Telemetry) batchEnded(b observe.Batch) {
	ctx, m := context.Background(), &t.metrics.batches
	of := t.ofProjection(b.Projection)
	outcome := of
	if b.Fault != "" {
		outcome = t.ofProjection(b.Projection, keyError.String(string(b.Fault)))
	}
	m.duration.Record(ctx, b.Duration.Seconds(), outcome)
	m.queued.Record(ctx, b.Queued.Seconds(), of)
	m.events.Record(ctx, int64(b.Events), of)
	m.bytes.Add(ctx, int64(b.Bytes), of)
	m.applied.Add(ctx, int64(b.Applied), of)
	if b.Live && b.Applied > 0 {
		m.latency.Record(ctx, max(0, time.Since(b.Oldest).Seconds()), of)
	}
}

func (t *Telemetry) eventFailed(f observe.Failure) {
	t.metrics.failures.failures.Add(context.Background(), 1,
		t.ofProjection(f.Projection, keyError.String(string(f.Fault))))
}

func (t *Telemetry) decided(d observe.Decision) {
	ctx, m, of := context.Background(), &t.metrics.failures, t.ofProjection(d.Projection)
	switch d.Action {
	case projection.ActionSkip:
		m.skipped.Add(ctx, int64(d.Events), of)
	case projection.ActionStop:
		m.stops.Add(ctx, 1, of)
	default:
		m.parked.Add(ctx, int64(d.Events), of)
	}
}

func (t *Telemetry) replayed(r observe.Replay) {
	outcome := "applied"
	if r.Err != nil {
		switch r.Action {
		case projection.ActionSkip:
			outcome = "skipped"
		case projection.ActionStop:
			outcome = "stopped"
		default:
			outcome = "parked"
		}
	}
	t.metrics.failures.replays.Add(context.Background(), 1, t.ofProjection(r.Projection, keyOutcome.String(outcome)))
}

func (t *Telemetry) breakerChanged(b observe.Breaker) {
	t.metrics.failures.breakers.Add(context.Background(), 1,
		t.ofProjection(b.Projection, keyState.String(string(b.State))))
}

func (t *Telemetry) leaseChanged(l observe.Lease) {
	change := string(l.Change)
	if l.Takeover {
		change = "taken over"
	}
	t.metrics.node.leases.Add(context.Background(), 1, t.ofProjection(l.Projection, keyChange.String(change)))
}

func (t *Telemetry) markHeld(h observe.Hold) {
	if h.Ended {
		t.metrics.node.hold.Record(context.Background(), time.Since(h.Since).Seconds(), t.ofTenant(h.Tenant))
	}
}

func (t *Telemetry) eventsRead(r observe.Read) {
	ctx, of := context.Background(), t.ofTenant(r.Tenant)
	t.metrics.node.reads.Add(ctx, int64(r.Events), of)
	if !r.Own {
		t.metrics.node.read.Record(ctx, r.Duration.Seconds(), of)
	}
	if r.Woken {
		t.metrics.node.wake.Record(ctx, r.Latency.Seconds(), of)
	}
}

func (t *Telemetry) slotWaited(w observe.Wait) {
	t.metrics.node.slot.Record(context.Background(), w.Duration.Seconds(),
		t.ofTenant(w.Tenant, keySlot.String(string(w.Slot))))
}

func (t *Telemetry) connectionsWaited(w observe.ConnectionWaits) {
	ctx, m := context.Background(), &t.metrics.node
	m.waits.Add(ctx, w.Count, metric.WithAttributes(keyOutcome.String("connected")))
	m.waits.Add(ctx, w.GivenUp, metric.WithAttributes(keyOutcome.String("given up")))
	m.waited.Add(ctx, w.Duration.Seconds())
}

func (t *Telemetry) sessionChanged(s observe.Session) {
	ctx, change := context.Background(), "lost"
	switch {
	case s.Connected && s.Again:
		change = "reconnected"
		t.metrics.node.disconnected.Record(ctx, s.Lasted.Seconds())
	case s.Connected:
		change = "connected"
	}
	t.metrics.node.sessions.Add(ctx, 1, metric.WithAttributes(keyChange.String(change)))
}

func (t *Telemetry) databaseChanged(d observe.Database) {
	if d.Usable {
		t.metrics.node.outages.Record(context.Background(), d.Outage.Seconds())
	}
}

func (t *Telemetry) actorRestarted(r observe.Restart) {
	why := attribute.String(string(keyError), "panic")
	if r.Stuck {
		why = keyError.String("stuck")
	}
	t.metrics.node.restarts.Add(context.Background(), 1, metric.WithAttributes(keyActor.String(string(r.Kind)), why))
}
