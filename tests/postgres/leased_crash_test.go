package postgres_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// step is where a process is killed that delivers its third event: what it does before the effect, after it, and after the
// acknowledgement.
type step struct {
	before, after, acknowledged func(b *bundle, position int64)
	// effect and ack tell what of the event there is then; unsure that there may be an acknowledgement or not.
	effect, ack, unsure bool
}

func dies(*bundle, int64)  { dieAtOnce() }
func lives(*bundle, int64) {}
func waits(*bundle, int64) { select {} }

var leasedSteps = map[string]step{
	"leased, before the effect":                      {before: dies, after: lives, acknowledged: lives},
	"leased, between effect and acknowledgement":     {before: lives, after: dies, acknowledged: lives, effect: true},
	"leased, once an acknowledgement can be seen":    {before: lives, after: dieOnceAcknowledged, acknowledged: waits, effect: true, ack: true},
	"leased, while the acknowledgement is under way": {before: lives, after: dieSoon, acknowledged: dies, effect: true, unsure: true},
	"leased, after the acknowledgement":              {before: lives, after: lives, acknowledged: dies, effect: true, ack: true},
}

// dieOnceAcknowledged ends the process from beside, as soon as others can see the acknowledgement.
func dieOnceAcknowledged(b *bundle, position int64) {
	go func() {
		for at := int64(0); at < position; {
			_ = b.store.Pool().QueryRow(b.ctx, "select checkpoint from millrace.leases").Scan(&at)
		}
		dieAtOnce()
	}()
}

// dieSoon ends the process from beside, at about the time that an acknowledgement takes.
func dieSoon(b *bundle, _ int64) {
	go func() {
		_ = b.store.Pool().Ping(b.ctx)
		dieAtOnce()
	}()
}

// leasedVictim delivers into the table arrived, which no transaction of the delivery's has a part in.
func leasedVictim(b *bundle, s step) millrace.Projection {
	n := 0
	return millrace.Projection{Name: "p", MaxEvents: 10, Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
		for _, e := range d.Events() {
			n++
			if n == 3 {
				s.before(b, e.Position)
			}
			if _, err := b.store.Pool().Exec(b.ctx, "insert into arrived (position, token) values ($1, $2)", e.Position, d.Token(e)); err != nil {
				return err
			}
			if n == 3 {
				s.after(b, e.Position)
			}
			if err := d.Ack(ctx, e.Position); err != nil {
				return err
			}
			if n == 3 {
				s.acknowledged(b, e.Position)
			}
		}
		return nil
	})}
}

// arrived is what the table has.
func (b *bundle) arrived() *receiver {
	b.t.Helper()
	var r receiver
	rows, err := b.store.Pool().Query(b.ctx, "select position, token from arrived order by at")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var a arrival
		if err := rows.Scan(&a.position, &a.token); err != nil {
			b.t.Fatal(err)
		}
		r.arrivals = append(r.arrivals, a)
	}
	return &r
}

func (b *bundle) makeArrived() {
	b.exec("create table arrived (position bigint, token text, at bigint generated always as identity)")
}

func TestKilledDeliveryRepeatsNothingButWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	const kills = 2
	for way, s := range leasedSteps {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{})
			b.makeArrived()
			positions := b.append("a", 25).Positions
			repeats := 0
			for range kills {
				var before int64
				scan := func(to *int64) {
					if err := b.store.Pool().QueryRow(b.ctx, "select coalesce(max(checkpoint), 0) from millrace.leases").Scan(to); err != nil {
						t.Fatal(err)
					}
				}
				scan(&before)
				b.kill(way)
				var checkpoint int64
				scan(&checkpoint)
				all := b.arrived().all()
				last := all[len(all)-1].position
				switch third := before + 3; {
				case s.effect && last != third, !s.effect && last != third-1:
					t.Errorf("killed at position %d, the last effect was at %d", third, last)
				case s.unsure && checkpoint != third && checkpoint != third-1, !s.unsure && (checkpoint == third) != s.ack, checkpoint < third-1:
					t.Errorf("killed at position %d, acknowledged up to %d", third, checkpoint)
				}
				if last > checkpoint {
					repeats++
				}
			}
			if _, err := b.runtime(quick, leasedVictim(b, step{before: lives, after: lives, acknowledged: lives})).RunUntilIdle(b.ctx); err != nil {
				t.Fatal(err)
			}
			r := b.arrived()
			b.mustHaveArrived(r, positions, repeats)
			// An acknowledgement under way may also commit after the checkpoint was read.
			if n := len(r.all()) - len(positions); n != repeats && (!s.unsure || n < 0 || n > repeats) {
				t.Errorf("%d arrivals of %d events, %d repeats were forced", len(r.all()), len(positions), repeats)
			}
			if letters := b.letters("p"); len(letters) != 0 {
				t.Errorf("dead letters %v", letters)
			}
		})
	}
}

// leasedDeadly is an event at which every process ends that delivers it.
const leasedDeadly = "leased, at one event"

func TestLeasedEventThatEndsItsProcessIsParked(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.makeArrived()
	positions := b.append("a", 20).Positions
	deaths := 0
	for ; b.try(leasedDeadly) != nil; deaths++ {
		if deaths > 10 {
			t.Fatalf("%d processes died", deaths)
		}
	}
	letters := b.letters("p")
	if deaths != 7 || len(letters) != 1 || letters[0].Position != fifth || letters[0].Error != projection.ErrProcessDied.Error() {
		t.Errorf("%d processes died, dead letters %+v", deaths, letters)
	}
	b.mustHaveArrived(b.arrived(), slices.DeleteFunc(positions, func(p int64) bool { return p == fifth }), 0)
}

// leasedWay is the projection of a victim that delivers, if the way is one of those.
func leasedWay(b *bundle, way string) (millrace.Projection, bool) {
	if s, ok := leasedSteps[way]; ok {
		return leasedVictim(b, s), true
	}
	switch way {
	case leasedDeadly:
		return millrace.Projection{Name: "p", MaxEvents: 10, Handler: millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
			if e.Position == fifth {
				dieAtOnce()
			}
			_, err := b.store.Pool().Exec(ctx, "insert into arrived (position, token) values ($1, $2)", e.Position, e.Token)
			return err
		})}, true
	case webhookWay:
		return webhooks(os.Getenv(victimURL)), true
	}
	return millrace.Projection{}, false
}
