package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// A server runs its projections until it is to end, and waits for one of them where a request must see what it just
// appended.
func ExampleRuntime_WaitFor() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, visits)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()

	result, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: "Visited"}, event.Event{Type: "Visited"})
	if err != nil {
		log.Panic(err)
	}
	if err := rt.WaitFor(ctx, millrace.ProjectionID{Name: "visits"}, result.Positions[1]); err != nil {
		log.Panic(err)
	}
	fmt.Println(exampleValue(store, "select n from visits where page = 'page-1'"))

	stop() // batches under way finish, leases are given back
	fmt.Println(<-ended)
	// Output:
	// 2
	// <nil>
}

func ExampleRuntime_Status() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, visits)
	ctx := context.Background()
	for _, page := range []string{"page-1", "page-2"} {
		if _, err := store.Append(ctx, page, event.Any, event.Event{Type: "Visited"}); err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}

	status, err := rt.Status(ctx)
	if err != nil {
		log.Panic(err)
	}
	for _, t := range status.Tenants {
		fmt.Println("tenant", t.Tenant, "ends at", t.Head)
	}
	for _, p := range status.Projections {
		fmt.Println(p.ID, p.State, "at", p.Checkpoint, "behind", p.Behind, "parked", p.Parked)
	}
	// Output:
	// tenant default ends at 2
	// default/visits not owned at 2 behind 0 parked 0
}

// A pause holds on every node, and until somebody resumes the projection.
func ExampleRuntime_Pause() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, visits)
	ctx, id := context.Background(), millrace.ProjectionID{Name: "visits"}
	if _, err := rt.RunUntilIdle(ctx); err != nil { // from now on the store knows the projection
		log.Panic(err)
	}

	if err := rt.Pause(ctx, id); err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: "Visited"}); err != nil {
		log.Panic(err)
	}
	_, err := rt.RunUntilIdle(ctx)
	fmt.Println("paused:", errors.Is(err, projection.ErrPaused))

	if err := rt.Resume(ctx, id); err != nil {
		log.Panic(err)
	}
	status, err := rt.RunUntilIdle(ctx)
	fmt.Println(err, status.Projection(id).Applied)
	// Output:
	// paused: true
	// <nil> 1
}

// countVisit counts events by their stream.
func countVisit(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
	_, err := tx.Exec(ctx, `insert into visits values ($1, 1) on conflict (page) do update set n = visits.n + 1`, e.Stream)
	return err
}

var visits = millrace.Projection{Name: "visits", Handler: pgstore.Each(countVisit)}

func exampleStore() (store *pgstore.Store, drop func()) {
	ctx := context.Background()
	dsn, dropDatabase := pgtest.ExampleDatabase()
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		log.Panic(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	_, err = store.Pool().Exec(ctx, "create table visits (page text primary key, n bigint); create table paid (customer text primary key, total numeric)")
	if err != nil {
		log.Panic(err)
	}
	return store, func() { store.Close(); dropDatabase() }
}

func exampleRuntime(store *pgstore.Store, projections ...millrace.Projection) *millrace.Runtime {
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	for _, p := range projections {
		if err := rt.Register(p); err != nil {
			log.Panic(err)
		}
	}
	return rt
}

func exampleValue(store *pgstore.Store, sql string) (value any) {
	if err := store.Pool().QueryRow(context.Background(), sql).Scan(&value); err != nil {
		log.Panic(err)
	}
	return value
}
