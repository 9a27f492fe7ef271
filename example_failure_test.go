package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

var (
	errTorn  = errors.New("the page is torn")
	repaired atomic.Bool
)

// countPages fails at some events. It asks itself what to do with one of them; the projection's policy decides about
// others.
func countPages(_ context.Context, _ pgx.Tx, e event.Envelope) error {
	switch {
	case e.Type == "PageIgnored":
		return projection.Skip(errors.New("of no interest"))
	case e.Type == "PageTorn" && !repaired.Load():
		return errTorn
	}
	return nil
}

// A failing event is retried and then parked, with the later events of its stream. Other streams go on. When the cause
// is repaired, the stream is replayed in order.
func ExampleProjection_onFailure() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_failure"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	id := millrace.ProjectionID{Name: "pages"}
	err = rt.Register(millrace.Projection{
		Name: id.Name, Handler: pgstore.Each(countPages),
		Retry:     projection.RetryPolicy{MaxAttempts: 3, Base: 10 * time.Millisecond},
		OnFailure: projection.ActionParkStream,
	})
	if err != nil {
		log.Panic(err)
	}
	var last int64
	for _, e := range []struct{ page, eventType string }{
		{"page-1", "PageTorn"}, {"page-2", "PageIgnored"}, {"page-2", "PageRead"}, {"page-1", "PageRead"},
	} {
		appended, err := store.Append(ctx, e.page, event.Any, event.Untyped(e.eventType, nil))
		if err != nil {
			log.Panic(err)
		}
		last = appended.Last()
	}
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	if err := rt.WaitFor(ctx, id, last); err != nil {
		log.Panic(err)
	}
	letters := store.DeadLetters(id)
	parked, err := letters.List(ctx, projection.DeadLetterPage{})
	if err != nil {
		log.Panic(err)
	}
	for _, l := range parked {
		fmt.Printf("%s, version %d, %d attempts: %s\n", l.Stream, l.Version, l.Attempts, l.Error)
	}

	repaired.Store(true)
	result, err := letters.Replay(ctx, projection.DeadLetterFilter{Stream: "page-1"}, 100)
	fmt.Printf("%d replayed, %d failed, %v\n", result.Done, result.Failed, err)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// page-1, version 1, 3 attempts: the page is torn
	// page-1, version 2, 0 attempts: parked after an earlier event of its stream
	// 2 replayed, 0 failed, <nil>
	// ended: <nil>
}
