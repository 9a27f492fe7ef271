package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestDetailHasTheTenuresAndBatchesThatNodesKnow(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		handler := func(context.Context, kit.Tx, event.Envelope) error { return errors.New("on purpose") }
		fails := millrace.Projection{Name: "fails", Retry: hourly, Handler: b.Store.Each(handler)}
		detail := func(a *admin.Admin, name string) admin.Detail {
			t.Helper()
			d, err := a.Detail(b.Ctx, projection.ID{Name: name})
			b.Must(err)
			return d
		}
		began := time.Now().Add(-time.Second)
		first := b.Another(quickBeats, append(b.Recorders("fine"), fails)...)
		stopFirst := b.Start(first)
		b.Reaches(first, "fine", b.Append("a", 20).Positions[19])
		b.Is(first, "fails", admin.StateWaiting)
		a := newAdmin(b)
		here := detail(first.Admin, "fine")
		if len(here.Tenures) != 1 || len(here.Batches) == 0 || here.Status.Position != 20 {
			t.Fatalf("%+v", here)
		}
		owner, batch := here.Tenures[0], here.Batches[0]
		if owner.Source != admin.SourceRuntime || owner.Epoch != 1 || owner.Node != here.Status.Owner ||
			owner.Began.Before(began) || !owner.Ended.IsZero() {
			t.Errorf("%+v", owner)
		}
		if batch.Source != admin.SourceRuntime || batch.Fault != "" || batch.Events < 1 || batch.Duration <= 0 ||
			batch.Ended.Before(owner.Began) || batch.Node != owner.Node {
			t.Errorf("%+v", batch)
		}
		var there admin.Detail
		b.Eventually("the other process knows what the node published", func() bool {
			there = detail(a, "fails")
			return len(there.Batches) > 0 && there.Batches[0].Events == 1 && // an earlier one was of all events
				there.Tenures[0].Source == admin.SourceHeartbeat
		})
		if last := there.Batches[0]; last.Source != admin.SourceHeartbeat || last.Fault != "handler" ||
			last.Events != 1 || last.Node != owner.Node {
			t.Errorf("%+v", there.Batches)
		}
		if p := there.Tenures[0]; len(there.Tenures) != 1 || p.Epoch != 1 || p.Node != owner.Node ||
			p.Began.Before(began) {
			t.Errorf("%+v", there.Tenures)
		}
		if fine := detail(a, "fine"); len(fine.Batches) != 0 {
			t.Errorf("the batches of a projection that is not behind are published: %+v", fine.Batches)
		}
		stopFirst()
		if gone := detail(a, "fine"); len(gone.Tenures) != 0 {
			t.Errorf("after the node stopped: %+v", gone.Tenures)
		}
		second := b.Another(quickBeats, b.Recorders("fine")...)
		b.Start(second)
		b.Eventually("the next node runs it", func() bool {
			d := detail(second.Admin, "fine")
			return len(d.Tenures) == 1 && d.Tenures[0].Epoch == 2 && d.Tenures[0].Node != owner.Node
		})
		if _, err := a.Detail(b.Ctx, projection.ID{Name: "unknown"}); !errors.Is(err, projection.ErrUnknownProjection) {
			t.Error(err)
		}
	})
}

func TestDetailHasTheTenuresBeforeAPause(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(quickBeats, millrace.Projection{Name: "p", Partitions: 2, Handler: b.Store.Batch(kit.Nothing)})
		id := projection.ID{Name: "p", Partition: 2}
		for epoch := int64(1); epoch <= 3; epoch++ {
			var d admin.Detail
			b.Eventually("the epoch begins", func() bool {
				var err error
				d, err = rt.Detail(b.Ctx, id)
				// the database has no time
				return err == nil && len(d.Tenures) > 0 && d.Tenures[0].Epoch == epoch && !d.Tenures[0].Began.IsZero()
			})
			for i, tenure := range d.Tenures {
				if tenure.Epoch != epoch-int64(i) || tenure.Partition != 2 || tenure.Ended.IsZero() != (i == 0) ||
					i > 0 && tenure.Ended.After(d.Tenures[i-1].Began) {
					t.Errorf("%+v", d.Tenures)
				}
			}
			if len(d.Tenures) != int(epoch) {
				t.Errorf("%+v", d.Tenures)
			}
			b.Pause(rt, "p")
			b.Must(rt.Resume(b.Ctx, projection.ID{Name: "p"}))
		}
	})
}
