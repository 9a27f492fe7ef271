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

// It takes a minute, since minutes are those of the clock.
func TestSummaryHasTheLastHourWithoutARuntime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		stops := b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
			return projection.Stop(errors.New("on purpose"))
		})
		rt := b.Another(quickBeats, append(b.Recorders("fine"), millrace.Projection{Name: "stops", Handler: stops})...)
		b.Start(rt)
		began := time.Now()
		b.Reaches(rt, "fine", b.Append("a", 20).Positions[19])
		b.Is(rt, "stops", admin.StateFailed)
		a := newAdmin(b)
		var s admin.Summary
		b.Eventually("a minute is reported", func() bool {
			var err error
			s, err = a.Summary(b.Ctx)
			b.Must(err)
			return len(s.Hour) > 0
		})
		applied, last := int64(0), s.Hour[len(s.Hour)-1]
		for _, m := range s.Hour {
			applied += m.Applied
		}
		if applied != 20 || last.Behind != 20 || last.Lag > time.Since(began)+time.Second ||
			last.At.Before(began.Add(-time.Minute)) {
			t.Errorf("%+v", s.Hour)
		}
	})
}
