package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/projection"
)

// behind returns how to connect to a new database through a pooler of its own, and around it.
func behind(t testing.TB, options pgtest.PgBouncerOptions) (through, around string) {
	t.Helper()
	around = pgtest.Database(t)
	config := must(pgx.ParseConfig(around))(t)
	return pgtest.Pooler(t, around, options).DSN(config.Database), around
}

// openThrough is a migrated store with a pool of its own.
func openThrough(t testing.TB, dsn string) *Store {
	t.Helper()
	dsn = must(pgtest.WithSetting(dsn, "pool_max_conns", "8"))(t)
	store := must(Open(testContext(t), dsn, Options{}))(t)
	t.Cleanup(store.Close)
	return migrated(t, store)
}

func TestAppendsAndBatchesWorkBehindAPoolerWithFewerSessionsThanClients(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
	store := openThrough(t, through)
	exerciseStore(t, store)
}

// exerciseStore appends in every way from more goroutines than there are sessions, and runs batches.
func exerciseStore(t *testing.T, store *Store) {
	t.Helper()
	ctx := testContext(t)
	const writers, rounds = 8, 10
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range rounds {
				stream := fmt.Sprintf("s%d", w)
				if err := appendInEveryWay(ctx, store, stream, int64(3*i)); err != nil {
					t.Errorf("round %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	mustExec(t, store, "create table public.model (position bigint not null, at bigint generated always as identity)")
	o := claimAs(t, store, projection.DefaultTenant)
	noError(t, o.apply(writeAnd(usualStatements), engine.ApplyOptions{}))
	o.applied(3 * writers * rounds)
}

// appendInEveryWay appends three events behind version.
func appendInEveryWay(ctx context.Context, store *Store, stream string, version int64) error {
	e := event.Event{Type: "Counted", Body: []byte(`{"n": 1}`)}
	key := fmt.Sprintf("%s-%d", stream, version)
	for range 2 {
		if _, err := store.Append(ctx, stream, event.Any.WithKey(key), e); err != nil {
			return fmt.Errorf("keyed: %w", err)
		}
	}
	if _, err := store.Append(ctx, stream, event.Exact(version+1), e); err != nil {
		return fmt.Errorf("exact: %w", err)
	}
	return store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, _, err := store.AppendTx(ctx, tx, stream, event.Any.WithKey(key+"-tx"), e); err != nil {
			return fmt.Errorf("in a transaction: %w", err)
		}
		return nil
	})
}

// usualStatements uses pgx as handlers do: the same statement twice, arguments whose types only the server knows, a
// pipelined batch, a copy.
func usualStatements(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "create temp table usual (id text, tags text[], body jsonb, price numeric, at timestamptz) on commit drop"); err != nil {
		return err
	}
	type status string
	const insert = "insert into usual (id, tags, body, price) values ($1, $2, $3, $4)"
	for i := range 2 {
		if _, err := tx.Exec(ctx, insert, status(fmt.Sprint("id", i)), []string{"a", "b"}, map[string]any{"n": i}, 1.25); err != nil {
			return fmt.Errorf("insert %d: %w", i, err)
		}
	}
	var batch pgx.Batch
	for i := range 2 {
		batch.Queue(insert, fmt.Sprint("batch", i), []string{}, []byte(`{"n": 1}`), 3)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	rows := [][]any{{"copied", []string{"c"}, map[string]any{}, 4.5}}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"usual"}, []string{"id", "tags", "body", "price"}, pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for range 2 {
		var body map[string]any
		if err := tx.QueryRow(ctx, "select body from usual where id = $1", "id1").Scan(&body); err != nil || body["n"] != 1.0 {
			return fmt.Errorf("body %v: %w", body, err)
		}
	}
	return nil
}

// openPool opens a store over a host's pool.
func openPool(t *testing.T, dsn string, mode pgx.QueryExecMode) (*Store, error) {
	t.Helper()
	config := must(pgxpool.ParseConfig(dsn))(t)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool := must(pgxpool.NewWithConfig(testContext(t), config))(t)
	t.Cleanup(pool.Close)
	store, err := OpenPool(testContext(t), pool, Options{})
	if err == nil {
		t.Cleanup(store.Close)
	}
	return store, err
}

func TestHostsPoolBehindAPoolerIsRefusedOrWorks(t *testing.T) {
	t.Parallel()
	for mode, works := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: false, pgx.QueryExecModeDescribeExec: false,
		pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeExec: true, pgx.QueryExecModeSimpleProtocol: true,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
			store, err := openPool(t, through, mode)
			if works {
				if err != nil {
					t.Fatal(err)
				}
				if !store.server.pooling.Lends {
					t.Error("the pooler was not noticed")
				}
				for i := range 3 {
					noError(t, appendInEveryWay(testContext(t), migrated(t, store), "s", int64(3*i)))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") || !strings.Contains(err.Error(), "max_prepared_statements") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// pgx's default works, since the pooler gives prepared statements names of its own and makes them where they are missing.
func TestPoolerThatFollowsPreparedStatementsTakesPgxsDefault(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2, FollowStatements: true})
	store := must(openPool(t, through, pgx.QueryExecModeCacheStatement))(t)
	if want := (session.Pooling{Lends: true}); store.server.pooling != want {
		t.Errorf("got %+v", store.server.pooling)
	}
	exerciseStore(t, migrated(t, store))
	if _, err := openPool(t, through, pgx.QueryExecModeDescribeExec); err == nil {
		t.Error("describe_exec uses the statement without a name, which is not followed, and is taken")
	}
}

// Nothing of another client's session can come into one's own, so that pgx's caches hold.
func TestPoolerInSessionModeIsLikeNone(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{Mode: "session"})
	store := must(openPool(t, through, pgx.QueryExecModeCacheStatement))(t)
	if store.server.pooling.Lends {
		t.Error("session pooling is taken for transaction pooling")
	}
	exerciseStore(t, migrated(t, store))
	session := must(connect(t, store, aNode()))(t)
	if session.Pooled() {
		t.Error("the session connection has its session to itself, and does not know it")
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if notice, err := session.Next(testContext(t)); err != nil || notice.Tenant != projection.DefaultTenant {
		t.Errorf("got %+v, %v", notice, err)
	}
}

func TestPoolerInStatementModeIsRefused(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{Mode: "statement"})
	for name, open := range map[string]func() (*Store, error){
		"Open":     func() (*Store, error) { return Open(testContext(t), through, Options{}) },
		"OpenPool": func() (*Store, error) { return openPool(t, through, pgx.QueryExecModeExec) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "statement pooling") || !strings.Contains(err.Error(), "pool_mode=transaction") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The pooler is noticed on the pool, however the session connection gets to the server.
func TestSessionDSNLeadsAroundThePooler(t *testing.T) {
	t.Parallel()
	through, around := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
	store := must(Open(testContext(t), through, Options{SessionDSN: around}))(t)
	t.Cleanup(store.Close)
	migrated(t, store)
	session := must(connect(t, store, aNode()))(t)
	if !store.server.pooling.Lends || session.Pooled() {
		t.Errorf("pool %v, session %v", store.server.pooling.Lends, session.Pooled())
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if notice, err := session.Next(testContext(t)); err != nil || notice.Tenant != projection.DefaultTenant {
		t.Errorf("got %+v, %v", notice, err)
	}
}
