package runbook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

var _ = add(map[string]func(s *scenario){
	"first-look":                                            firstLook,
	"events-are-parked":                                     parkedEvents,
	"all-events-of-a-stream-are-parked":                     parkedStream,
	"a-replay-is-refused":                                   refusedReplay,
	"a-replay-does-not-end":                                 endlessReplay,
	"a-projection-stopped-at-an-event":                      stoppedAtAnEvent,
	"a-projection-stopped-because-nearly-all-events-failed": nearlyAllFail,
	"many-events-fail-and-are-tried-again":                  manyFailures,
	"events-were-skipped":                                   skippedEvents,
	"an-event-ends-every-process":                           deadlyEvent,
	"an-event-cannot-be-read":                               unreadableEvent,
	"a-handler-does-not-return":                             handlerDoesNotReturn,
})

// refusing fails at events of the type OrderRefused, and is the handler before its repair.
func refusing(_ context.Context, _ pgx.Tx, e event.Envelope) error {
	if e.Type == "OrderRefused" {
		return errors.New("division by zero")
	}
	return nil
}

func firstLook(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"), totals(refusing))
	s.append("", "OrderRefused")
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	_, err := s.store.DeadLetters(millrace.ProjectionID{Name: "totals"}).Replay(s.ctx,
		projection.DeadLetterFilter{All: true}, 1)
	s.must(err)
	s.follow()
}

func parkedEvents(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"), totals(refusing))
	s.append("", "OrderPlaced", "OrderRefused", "OrderRefused")
	s.follow()
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
}

func parkedStream(s *scenario) {
	s.database()
	p := totals(refusing)
	p.OnFailure = projection.ActionParkStream
	stop := s.node(soon("shop-1"), p)
	s.append("", "OrderRefused", "OrderPaid", "OrderSent")
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
}

func refusedReplay(s *scenario) {
	s.database()
	p := totals(refusing)
	p.OnFailure = projection.ActionPark
	stop := s.node(soon("shop-1"), p)
	s.append("", "OrderRefused", "OrderPaid")
	s.reaches("", 2)
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
	s.follow()
}

func endlessReplay(s *scenario) {
	s.database()
	stop := s.parkThenPause()
	stop()
	stop = s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
	s.follow()
	stop()

	// Another replay waits, and is not wanted any more.
	stop = s.parkThenPause()
	stop()
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	id := millrace.ProjectionID{Name: "totals"}
	if _, err := s.store.DeadLetters(id).Replay(ctx, projection.DeadLetterFilter{All: true}, 10); !errors.Is(err,
		projection.ErrCommandPending) {
		s.Fatal(err)
	}
	s.follow()
	s.node(soon("shop-1"), totals(nil))
	s.must(s.admin().Resume(s.ctx, id))
	s.append("", "OrderPlaced")
	s.reaches("", 3)
	if n, err := s.store.DeadLetters(id).Count(s.ctx, projection.DeadLetterFilter{All: true}); n != 1 || err != nil {
		s.Errorf("%d events are parked after the replay was cancelled: %v", n, err)
	}
}

// parkThenPause runs a node with the handler before its repair until it has parked an event, and pauses the projection.
func (s *scenario) parkThenPause() (stop func()) {
	s.Helper()
	stop = s.node(soon("shop-1"), totals(refusing))
	s.append("", "OrderRefused")
	id := millrace.ProjectionID{Name: "totals"}
	s.eventually("an event is parked", func() bool {
		n, err := s.store.DeadLetters(id).Count(s.ctx, projection.DeadLetterFilter{All: true})
		return err == nil && n == 1
	})
	s.must(s.admin().Pause(s.ctx, id))
	return stop
}

func stoppedAtAnEvent(s *scenario) {
	s.database()
	p := totals(refusing)
	p.OnFailure = projection.ActionStop
	stop := s.node(soon("shop-1"), p)
	s.append("", "OrderPlaced", "OrderRefused", "OrderPaid")
	s.follow()
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
}

func nearlyAllFail(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"), totals(refusing))
	s.append("", slices.Repeat([]string{"OrderRefused"}, 40)...)
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
}

func skippedEvents(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"), totals(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
		if e.Type == "OrderRefused" {
			return projection.Skip(errors.New("an order cannot be refused"))
		}
		return nil
	}))
	s.append("", "OrderPlaced", "OrderRefused")
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
}

func manyFailures(s *scenario) {
	s.database()
	var repaired sync.Map
	p := totals(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if _, ok := repaired.Load("all"); ok {
			return nil
		}
		return refusing(ctx, tx, e)
	})
	p.Retry.MaxAttempts = 1000
	s.node(soon("shop-1"), p)
	s.append("", "OrderRefused")
	s.follow()
	repaired.Store("all", true)
	s.follow()
}

// deadlyEvent restarts the node each time it ends, as an orchestrator does.
func deadlyEvent(s *scenario) {
	s.database()
	repaired := filepath.Join(s.dir, "repaired")
	s.append("", "OrderPlaced", "Deadly")
	ended, stopped := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(ended); <-stopped })
	s.Cleanup(stop)
	go func() {
		defer close(stopped)
		for {
			cmd := s.started("shop-1", s.dsn, repaired)
			exited := make(chan struct{})
			go func() { _ = cmd.Wait(); close(exited) }()
			select {
			case <-exited:
			case <-ended:
				_ = cmd.Process.Kill()
				<-exited
				return
			}
		}
	}()
	s.follow()
	s.follow()
	s.must(os.WriteFile(repaired, nil, 0o600))
	s.follow()
}

func handlerDoesNotReturn(s *scenario) {
	s.database()
	hang := make(chan struct{})
	p := totals(func(context.Context, pgx.Tx, event.Envelope) error { <-hang; return nil })
	p.Timeout, p.Retry.MaxAttempts = 100*time.Millisecond, 1
	stop := s.node(soon("shop-1"), p)
	s.append("", "OrderPlaced")
	s.follow()
	close(hang)
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
}

// unreadableEvent damages the second of three events, whose body is outside of the table.
func unreadableEvent(s *scenario) {
	s.database()
	s.append("", "OrderPlaced", "OrderPlaced", "OrderPlaced")
	s.sql(`alter table millrace_default.events alter column body set storage external;
		update millrace_default.events set body = to_jsonb(repeat('x', 5000)) where global_seq = 2`)
	var toast string
	s.must(s.store.Pool().QueryRow(s.ctx,
		"select reltoastrelid::regclass::text from pg_class where oid = 'millrace_default.events'::regclass").Scan(&toast))
	s.sql(fmt.Sprintf(`set allow_system_table_mods = on; update pg_class set relkind = 'r' where oid = '%[1]s'::regclass;
		delete from %[1]s; update pg_class set relkind = 't' where oid = '%[1]s'::regclass`, toast))
	s.sql("vacuum " + toast) // until then its readers see what was deleted
	counts := totals(nil)
	counts.AnyOrder = true
	s.node(soon("shop-1"), counts)
	s.reaches("", 3)
	for range 4 {
		s.follow()
	}
}
