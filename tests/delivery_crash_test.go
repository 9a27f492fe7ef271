package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// step is the moment at which a process is killed while it delivers its third event: before the effect, after it, or
// after the acknowledgement.
type step struct {
	before, after, acknowledged func(b *kit.Bundle, position int64)
	// effect and ack say whether the event has them then. unsure means that there may be an acknowledgement or not.
	effect, ack, unsure bool
}

func dies(*kit.Bundle, int64) { kit.Die() }

func lives(*kit.Bundle, int64) {}

func waits(*kit.Bundle, int64) { select {} }

var deliverySteps = map[string]step{
	"before the effect":                  {before: dies, after: lives, acknowledged: lives},
	"between effect and acknowledgement": {before: lives, after: dies, acknowledged: lives, effect: true},
	"once an acknowledgement can be seen": {
		before: lives, after: diesOnceAcknowledged, acknowledged: waits, effect: true, ack: true,
	},
	"while the acknowledgement is on its way": {
		before: lives, after: diesSoon, acknowledged: dies, effect: true, unsure: true,
	},
	"after the acknowledgement of a delivered event": {
		before: lives, after: lives, acknowledged: dies, effect: true, ack: true,
	},
}

// diesOnceAcknowledged kills the process as soon as others can see the acknowledgement.
func diesOnceAcknowledged(b *kit.Bundle, position int64) {
	watcher := b.Runtime(millrace.Config{})
	go func() {
		for at := int64(0); at < position; {
			if status, err := watcher.Status(b.Ctx, admin.StatusFilter{}); err == nil {
				at = status.Projection(millrace.ProjectionID{Name: "p"}).Checkpoint
			}
		}
		kit.Die()
	}()
}

// diesSoon kills the process after about as long as an acknowledgement takes.
func diesSoon(b *kit.Bundle, _ int64) {
	go func() {
		_, _, _ = b.Store.Commands(b.Ctx)
		kit.Die()
	}()
}

// delivering records its effects outside of every transaction of the delivery.
func delivering(b *kit.Bundle, s step) millrace.Projection {
	n := 0
	return millrace.Projection{Name: "p", MaxEvents: 10,
		Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				n++
				if n == 3 {
					s.before(b, e.Position)
				}
				if err := b.Store.Arrive(b.Ctx, kit.Arrival{Position: e.Position, Token: d.Token(e)}); err != nil {
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

// mustHaveArrivedIn is MustHaveArrived for the effects in the store.
func mustHaveArrivedIn(b *kit.Bundle, positions []int64, repeats int) (arrivals []kit.Arrival) {
	b.T.Helper()
	arrivals, err := b.Store.Arrived(b.Ctx)
	b.Must(err)
	b.MustHaveArrived(arrivals, positions, repeats)
	return arrivals
}

func TestKilledDeliveryRepeatsOnlyTheEventInProgress(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for way, s := range deliverySteps {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				positions := b.Append("a", 25).Positions
				watcher := b.Runtime(millrace.Config{})
				repeats := 0
				for range 2 {
					third := b.Status(watcher, "p").Checkpoint + 3
					b.Kill(way)
					checkpoint := b.Status(watcher, "p").Checkpoint
					all, err := b.Store.Arrived(b.Ctx)
					b.Must(err)
					last := all[len(all)-1].Position
					switch {
					case s.effect && last != third, !s.effect && last != third-1:
						t.Errorf("killed at position %d, the last effect was at %d", third, last)
					case s.unsure && checkpoint != third && checkpoint != third-1, !s.unsure &&
						(checkpoint == third) != s.ack, checkpoint < third-1:
						t.Errorf("killed at position %d, acknowledged up to %d", third, checkpoint)
					}
					if last > checkpoint {
						repeats++
					}
				}
				b.RunUntilIdle(b.Runtime(kit.Quick,
					delivering(b, step{before: lives, after: lives, acknowledged: lives})))
				arrivals := mustHaveArrivedIn(b, positions, repeats)
				// An acknowledgement on its way may also commit after the checkpoint was read.
				if n := len(arrivals) - len(positions); n != repeats && (!s.unsure || n < 0 || n > repeats) {
					t.Errorf("%d arrivals of %d events, %d repeats were forced", len(arrivals), len(positions), repeats)
				}
				if letters := b.DeadLettersOf("p"); len(letters) != 0 {
					t.Errorf("dead letters %v", letters)
				}
			})
		}
	})
}

const (
	webhookWay = "leased, posting webhooks"
	victimURL  = "MILLRACE_TEST_VICTIM_URL"
)

func webhookURL() string { return os.Getenv(victimURL) }

// post is the handler of docs/delivery.md.
func post(client *http.Client, url string) millrace.Handler {
	return millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(e.Body)))
		if err != nil {
			return projection.Park(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", e.Token)
		response, err := client.Do(request)
		if err != nil {
			return projection.Retry(err) // the receiver cannot be reached at the moment
		}
		defer func() { _ = response.Body.Close() }()
		switch {
		case response.StatusCode < 300:
			return nil
		case response.StatusCode >= 500, response.StatusCode == http.StatusTooManyRequests:
			return projection.Retry(errors.New(response.Status))
		}
		return projection.Park(errors.New(response.Status)) // the receiver will never accept this event
	})
}

func webhooks(url string) millrace.Projection {
	return millrace.Projection{Name: "p", MaxEvents: 10, Retry: kit.Soon(0), Handler: post(&http.Client{}, url)}
}

// hook is a webhook receiver that fails at random, and kills the sender of a request when it is armed.
type hook struct {
	*httptest.Server
	kit.Receiver
	random *rand.Rand
	turn   sync.Mutex
	failed int
	kill   func() // nil while it is not armed
	after  bool   // the effect, else before it
	in     int    // how many requests that succeed are left until then
}

func newHook(t *testing.T) *hook {
	seed := kit.Seed(t)
	h := &hook{random: rand.New(rand.NewPCG(seed, seed))}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.turn.Lock()
	defer h.turn.Unlock()
	switch h.random.IntN(6) {
	case 0:
		h.failed++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case 1:
		h.failed++
		panic(http.ErrAbortHandler) // the connection is cut
	}
	var position int64
	_, rest, _ := strings.Cut(r.Header.Get("Idempotency-Key"), "/") // the projection's token, the position, the time
	if _, err := fmt.Sscanf(rest, "%d/", &position); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.in--
	now := h.kill != nil && h.in == 0
	if now && !h.after {
		h.kill()
		return // the sender is dead
	}
	h.Take(position, r.Header.Get("Idempotency-Key"))
	if now {
		h.kill()
	}
}

// next arms the hook for the next process, which it kills after some more requests.
func (h *hook) next(kill func()) {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.kill, h.after, h.in = kill, h.random.IntN(2) == 0, 2+h.random.IntN(9)
}

// The sender is killed again and again, in the middle of a request, while the receiver fails at random. Every event
// arrives, in order, and again only where a kill came between its effect and its acknowledgement, with the same token.
func TestWebhooksArriveThoughTheirSenderIsKilled(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := b.Append("a", 60).Positions
		h := newHook(t)
		forced := 0
		for range 5 {
			victim := b.VictimOf(webhookWay)
			victim.Env = append(victim.Env, victimURL+"="+h.URL)
			var out strings.Builder
			victim.Stdout, victim.Stderr = &out, &out
			// The request waits for the end of its sender, so that no answer comes first.
			started, gone := make(chan struct{}), make(chan error, 1)
			h.next(func() {
				<-started
				if err := victim.Process.Kill(); err != nil {
					t.Error(err)
				}
				gone <- victim.Wait()
			})
			b.Must(victim.Start())
			close(started)
			select {
			case <-gone:
			case <-b.Ctx.Done():
				t.Fatalf("the sender was not killed: %s", out.String())
			}
			if h.after {
				forced++
			}
		}
		h.next(nil)
		b.RunUntilIdle(b.Runtime(kit.Quick, webhooks(h.URL)))
		http.DefaultClient.CloseIdleConnections()
		b.MustHaveArrived(h.All(), positions, forced)
		if arrived := len(h.All()); arrived != len(positions)+forced || h.failed == 0 {
			t.Errorf("%d arrivals of %d events, %d repeats were forced; %d requests failed", arrived, len(positions),
				forced, h.failed)
		}
		if letters := b.DeadLettersOf("p"); len(letters) != 0 {
			t.Errorf("dead letters %v", letters)
		}
		t.Logf("60 events, %d requests failed, 5 senders killed, %d of them after the effect: %d arrivals", h.failed,
			forced, len(h.All()))
	})
}
