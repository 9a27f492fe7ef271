package tests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// While a release with a registry is rolled out, nodes of the release before run beside it. They share the partitions
// of a projection, and each event is handled once, by the handler of one or the other. After they have ended, the new
// type is appended.
func TestNodesWithAndWithoutARegistryRunSideBySide(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b)
		before := kit.Typed[upItem1]{Store: b.Store}.On(func(ctx context.Context, tx kit.Tx,
			e event.Of[upItem1]) error {
			var euros int
			if _, err := fmt.Sscan(e.Body.Amount, &euros); err != nil {
				return err
			}
			e.Envelope.Type, e.Envelope.Body = "up-item.v2", json.RawMessage(fmt.Sprintf(`{"cents":%d}`, 100*euros))
			return tx.Record(ctx, "p", asLines([]event.Envelope{e.Envelope})...)
		})
		stopOld := b.Start(b.Runtime(kit.Quick, millrace.Projection{Name: "p", Partitions: 4, Handler: before}))
		rt := u.Running(kit.Quick, millrace.Projection{Name: "p",
			Partitions: 4, Handler: recordsOn[upItem](u.Store, "p")})
		if u.Kind.Meets(kit.SeveralNodes) {
			u.Share(rt, 2)
		}
		var want []string
		appends := func(by kit.Tenant, n int, e event.Event) {
			at := u.MustAppend(by, fmt.Sprint("s", n%8), event.Any, e).Last()
			want = append(want, fmt.Sprintf(`%d up-item.v2 0 {"cents":%d}`, at, 100*n))
		}
		handled := func() {
			u.Eventually("all are handled", func() bool { return len(u.recorded("p")) >= len(want) })
			got := u.recorded("p")
			slices.SortFunc(got, func(a, b string) int { return positionOf(a) - positionOf(b) })
			mustEqual(t, "handled", got, want)
		}
		for n := range 40 {
			appends([]kit.Tenant{b.Store, u.Store}[n%2], n, event.New(upItem1{fmt.Sprint(n)}))
		}
		handled()
		stopOld()
		for n := range 40 {
			appends(u.Store, n, []event.Event{event.New(upItem1{fmt.Sprint(n)}), event.New(upItem{100 * n})}[n/8%2])
		}
		handled()
	})
}
