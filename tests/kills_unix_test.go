//go:build unix

package tests_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Run it for longer by: make kills KILLS=10m
var killsFor = flag.Duration("kills", 4*time.Second,
	"how long TestKilledAndFrozenProcessesLoseNothing kills and freezes processes")

// mendedEnv names a file for the victims of killing. As long as it does not exist, poison events fail.
const mendedEnv = "MILLRACE_TEST_MENDED"

// The types of events at which handlers fail, and end their process.
const (
	poisonType = "poison"
	deadlyType = "deadly"
)

// killing are the projections of a process that is killed at any time.
func killing(b *kit.Bundle, mended string) []millrace.Projection {
	is := func(eventType string) func(event.Envelope) bool {
		return func(e event.Envelope) bool { return e.Type == eventType }
	}
	parking := millrace.Projection{Name: "parking", MaxEvents: 10, MaxFailureShare: projection.NoLimit,
		Retry: kit.Soon(1), OnFailure: projection.ActionParkStream,
		Replay: projection.ReplayPolicy{Interval: 100 * time.Millisecond, Factor: 1, MaxReplays: projection.NoLimit},
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if at := slices.IndexFunc(events, is(poisonType)); at >= 0 {
				if _, err := os.Stat(mended); err != nil {
					return projection.At(events[at].Position, kit.ErrOnPurpose)
				}
			}
			return tx.Record(ctx, "parking", events...)
		})}
	queued := parking
	queued.Name, queued.Handler = "queued", b.Store.Queued(kit.FailsQueued("queued", true, func(e event.Envelope) bool {
		_, err := os.Stat(mended)
		return is(poisonType)(e) && err != nil
	}))
	return append(b.Recorders("plain"), parking, queued,
		millrace.Projection{Name: "deadly", MaxEvents: 10,
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if slices.ContainsFunc(events, is(deadlyType)) {
					kit.Die()
				}
				return tx.Record(ctx, "deadly", events...)
			})},
		millrace.Projection{Name: "delivered",
			Handler: millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
				return b.Store.Arrive(ctx, kit.Arrival{Position: e.Position, Token: e.Token})
			})})
}

// killed is the way of a victim that another process kills.
const killed = "at any time"

func init() {
	otherVictims[killed] = func(b *kit.Bundle) {
		b.Start(b.Runtime(kit.Quick, killing(b, os.Getenv(mendedEnv))...))
		// Its own events reach its feed without a read, if the store can do that.
		for ; b.Ctx.Err() == nil; kit.Pass(b.Ctx, 20*time.Millisecond) {
			_, _ = b.Store.Append(b.Ctx, "own", event.Any, event.Event{Type: "own"})
		}
	}
}

// herd are processes that start again when they end.
type herd struct {
	*kit.Bundle
	mended string

	mu      sync.Mutex
	running []*exec.Cmd
	ended   bool
	group   sync.WaitGroup
}

func newHerd(b *kit.Bundle, n int, mended string) *herd {
	h := &herd{Bundle: b, mended: mended, running: make([]*exec.Cmd, n)}
	for i := range n {
		h.group.Go(func() {
			for h.runOnce(i) {
			}
		})
	}
	b.T.Cleanup(h.end)
	return h
}

// runOnce runs process i until it ends, and reports whether it should run again.
func (h *herd) runOnce(i int) bool {
	cmd := h.VictimOf(killed)
	cmd.Env = append(cmd.Env, mendedEnv+"="+h.mended)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return false
	}
	err := cmd.Start()
	h.running[i] = cmd
	h.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
		h.T.Errorf("a process failed by itself: %v: %s", err, out.String())
		return false
	}
	return true
}

// signal sends a signal to process i.
func (h *herd) signal(i int, s syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cmd := h.running[i]; cmd != nil && cmd.Process != nil {
		_ = cmd.Process.Signal(s) // it may have ended
	}
}

// end kills all processes.
func (h *herd) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for i := range h.running {
		h.signal(i, syscall.SIGKILL)
	}
	h.group.Wait()
}

// harass kills and freezes processes at random, and counts that.
func (h *herd) harass(random *rand.Rand, d time.Duration, kills, freezes *int) {
	for until := time.Now().Add(d); time.Now().Before(until) && h.Ctx.Err() == nil; {
		i := random.IntN(len(h.running))
		if random.IntN(3) > 0 {
			h.signal(i, syscall.SIGKILL)
			*kills++
		} else {
			h.signal(i, syscall.SIGSTOP)
			kit.Pass(h.Ctx, time.Duration(random.IntN(600))*time.Millisecond)
			h.signal(i, syscall.SIGCONT)
			*freezes++
		}
		kit.Pass(h.Ctx, time.Duration(random.IntN(500))*time.Millisecond)
	}
}

// Processes die and freeze at any time, while events fail, are parked and replayed, and one event ends every process
// that handles it. Every event is applied once and in order.
func TestKilledAndFrozenProcessesLoseNothing(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		ctx, cancel := context.WithTimeout(t.Context(), *killsFor+3*time.Minute)
		defer cancel()
		b.Ctx = ctx
		random := rand.New(rand.NewPCG(kit.Seed(t), 0))
		mended := filepath.Join(t.TempDir(), "mended")
		h := newHerd(b, 3, mended)
		stop := b.Flow()
		deadly := b.MustAppend(b.Store, "deadly", event.Any, event.Event{Type: deadlyType}).Positions[0]
		// In each round the streams of new poison events are parked, and then replayed.
		const longest = 40 * time.Second
		var kills, freezes int
		for left := *killsFor; left > 0 && ctx.Err() == nil; left -= longest {
			if err := os.Remove(mended); !errors.Is(err, fs.ErrNotExist) {
				b.Must(err)
			}
			for i := range 3 {
				b.MustAppend(b.Store, fmt.Sprint("s", i), event.Any, event.Event{Type: poisonType})
			}
			h.harass(random, min(left, longest)/2, &kills, &freezes)
			b.Must(os.WriteFile(mended, nil, 0o600))
			h.harass(random, min(left, longest)/2, &kills, &freezes)
		}
		b.Eventually("the deadly event is parked", func() bool { return len(b.DeadLettersOf("deadly")) > 0 })
		stop()
		h.end()

		rt := b.Runtime(kit.Quick, killing(b, mended)...)
		defer b.Start(rt)()
		began := time.Now()
		head := int64(0)
		for now := b.Head(); now != head; now = b.Head() { // the server may still commit an append of a killed process
			head = now
			for _, name := range []string{"plain", "parking", "queued", "deadly", "delivered"} {
				b.Reaches(rt, name, head)
			}
		}
		t.Logf("%d kills and %d freezes, %d events; the rest took %v", kills, freezes, head, time.Since(began))
		b.Eventually("no event is parked",
			func() bool { return len(b.DeadLettersOf("parking"))+len(b.DeadLettersOf("queued")) == 0 })
		b.Verify("plain")
		b.Verify("deadly", deadly)
		b.Must(b.CheckStreams("parking"))
		b.Must(b.CheckStreams("queued"))
		b.Must(everyEventArrived(b, b.All(b.Store)))
	})
}

// everyEventArrived returns an error unless each event arrived, always with the same token.
func everyEventArrived(b *kit.Bundle, events []event.Envelope) error {
	arrivals, err := b.Store.Arrived(b.Ctx)
	tokens := make(map[int64]string)
	for _, a := range arrivals {
		if token, again := tokens[a.Position]; again && token != a.Token {
			return fmt.Errorf("the event at %d arrived with the tokens %s and %s", a.Position, token, a.Token)
		}
		tokens[a.Position] = a.Token
	}
	for _, e := range events {
		if tokens[e.Position] == "" {
			return errors.Join(err, fmt.Errorf("the event at %d did not arrive", e.Position))
		}
	}
	if len(tokens) != len(events) {
		return errors.Join(err, fmt.Errorf("%d events arrived, of %d", len(tokens), len(events)))
	}
	return err
}
