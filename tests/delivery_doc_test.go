package tests_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// registerInvoices is the registration of docs/delivery.md.
func registerInvoices(rt *millrace.Runtime, client *http.Client, url string) error {
	err := rt.Register(millrace.Projection{Name: "invoices", Types: []string{"OrderPaid"}, Handler: post(client, url)})
	return err
}

// published is what the recipe for brokers published: the size of each chunk, and the tokens of its events.
type published struct {
	chunks []int
	tokens []string
}

// broker is the recipe of docs/delivery.md for brokers.
func broker(publishAll func(ctx context.Context, events []event.Envelope,
	token func(e event.Envelope) string) error) millrace.Projection {
	return millrace.Projection{
		Name: "p",
		Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for chunk := range slices.Chunk(d.Events(), 50) {
				if d.Remaining() < time.Second {
					return nil // the rest comes with the next delivery
				}
				if err := publishAll(ctx, chunk, d.Token); err != nil {
					return err
				}
				if err := d.Ack(ctx, chunk[len(chunk)-1].Position); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func TestBrokerRecipePublishesInChunks(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("orders", 120)
		var p published
		b.Idle(broker(func(_ context.Context, events []event.Envelope, token func(e event.Envelope) string) error {
			p.chunks = append(p.chunks, len(events))
			for _, e := range events {
				p.tokens = append(p.tokens, fmt.Sprintf("%03d %s", e.Position, token(e)))
			}
			return nil
		}))
		if !slices.Equal(p.chunks, []int{50, 50, 20}) {
			t.Errorf("chunks of %v events", p.chunks)
		}
		if len(slices.Compact(slices.Clone(p.tokens))) != 120 || !slices.IsSorted(p.tokens) {
			t.Errorf("tokens %v", p.tokens)
		}
	})
}

func TestWebhookRecipeIsRegistered(t *testing.T) {
	kit.RunPage(t, func(_ *testing.T, b *kit.Bundle) {
		b.Must(registerInvoices(b.Runtime(millrace.Config{}), http.DefaultClient, "http://127.0.0.1:1"))
	})
}
