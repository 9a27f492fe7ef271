package tests_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestStreamIsDescribed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		other, err := b.Store.CreateTenant(b.Ctx, "other")
		b.Must(err)
		b.MustAppend(b.Store, "s", event.NoStream, kit.SomeEvents(2)...)
		kit.Pass(b.Ctx, 2*time.Millisecond) // times are microseconds
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(3)...)
		b.MustAppend(b.Store, "s2", event.Any, kit.SomeEvents(1)...)
		b.MustAppend(other, "s", event.Any, kit.SomeEvents(1)...)
		for _, c := range []struct {
			of      kit.Tenant
			stream  string
			version int64
		}{{b.Store, "s", 5}, {b.Store, "s2", 1}, {other, "s", 1}, {other, "s2", 0}, {b.Store, "", 0}} {
			want := event.StreamInfo{ID: c.stream, Version: c.version}
			if events := b.Collect(c.of.ReadStream(b.Ctx, c.stream, 1)); c.version > 0 {
				want.Created, want.LastEvent = events[0].Time, events[c.version-1].Time
			}
			got, err := c.of.Stream(b.Ctx, c.stream)
			if err != nil || got != want {
				t.Errorf("%s of %s: %+v, %v, want %+v", c.stream, c.of.Name(), got, err, want)
			}
		}
		s, err := b.Store.Stream(b.Ctx, "s")
		b.Must(err)
		if !s.LastEvent.After(s.Created) {
			t.Errorf("created %v, last event %v", s.Created, s.LastEvent)
		}
		for _, stream := range []string{"s", "new"} {
			found, err := b.Store.Stream(b.Ctx, stream)
			b.Must(err)
			b.MustAppend(b.Store, stream, event.Exact(found.Version), kit.SomeEvents(1)...)
		}
		if _, err := b.Store.Stream(b.Ctx, "\xff"); err == nil {
			t.Error("a text that cannot be stored is no error")
		}
	})
}

func TestStreamOfATenantThatIsNotActive(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		b.MustAppend(tenant, "s", event.Any, kit.SomeEvents(2)...)
		b.Must(b.Store.ArchiveTenant(b.Ctx, "acme"))
		if s, err := tenant.Stream(b.Ctx, "s"); err != nil || s.Version != 2 {
			t.Errorf("archived: %+v, %v", s, err)
		}
		b.Must(b.Store.DropTenant(b.Ctx, "acme"))
		none, err := b.Store.ForTenant("none")
		b.Must(err)
		for _, of := range []kit.Tenant{tenant, none} {
			if s, err := of.Stream(b.Ctx, "s"); !errors.Is(err, tenancy.ErrUnknown) || s != (event.StreamInfo{}) {
				t.Errorf("%s: %+v, %v, want %v", of.Name(), s, err, tenancy.ErrUnknown)
			}
		}
	})
}

// The version of a stream never falls, so an append continues it after its events were deleted.
func TestStreamWhoseEventsWereDeleted(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(3)...)
		for _, c := range []struct {
			where string
			left  int
		}{{"stream_version = 1", 2}, {"true", 0}} {
			table := map[string]string{"pgstore": "millrace_default.events where " + c.where,
				"sqlitestore": "millrace_events where " +
					strings.ReplaceAll(c.where, "stream_version", "version")}[b.Kind.Name]
			b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context,
				tx kit.Tx) error {
				return tx.Exec(ctx, "delete from "+table)
			}))
			want := event.StreamInfo{ID: "s", Version: 3}
			if events := b.Collect(b.Store.ReadStream(b.Ctx, "s", 1)); len(events) != c.left {
				t.Fatalf("%d events, want %d", len(events), c.left)
			} else if c.left > 0 {
				want.Created, want.LastEvent = events[0].Time, events[c.left-1].Time
			}
			if s, err := b.Store.Stream(b.Ctx, "s"); err != nil || s != want {
				t.Errorf("%+v, %v, want %+v", s, err, want)
			}
		}
	})
}
