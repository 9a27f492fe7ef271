package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// tableSchema holds what the handlers write; who creates it owns the lab.
	tableSchema = "bench"
	// storeSchema keeps the lab's store apart from one that the database may hold already.
	storeSchema = "bench_millrace"
	createLimit = 30 * time.Second
	closeLimit  = time.Minute
)

// lab is a store, and tables for the handlers, in schemas of its own, which close removes. All sides share its pool.
type lab struct {
	pool    *pgxpool.Pool
	store   *pgstore.Store
	created []string // schemas that are this lab's
}

// newLab refuses to work where one of its schemas exists. After an error nothing is left of it.
func newLab(ctx context.Context, dsn string, writers int) (_ *lab, err error) {
	l := &lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close(ctx))
		}
	}()
	if l.pool, err = program.Connect(ctx, dsn, writers); err != nil {
		return nil, err
	}
	if l.store, err = pgstore.OpenPool(ctx, l.pool, pgstore.Options{Schema: storeSchema}); err != nil {
		return nil, err
	}
	if err = l.create(ctx); err != nil {
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	return l, nil
}

// create makes all tables. It is not interrupted half-way, so that it is known what there is to remove.
func (l *lab) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	if err := l.claim(ctx); err != nil {
		return err
	}
	l.created = []string{tableSchema, storeSchema}
	if err := l.store.Migrate(ctx); err != nil {
		return err
	}
	l.created = append(l.created, l.store.EventsSchema())
	return nil
}

// claim makes the first schemas, both or none.
func (l *lab) claim(ctx context.Context) error {
	schemas := []string{tableSchema, storeSchema, l.store.EventsSchema()}
	return program.Claim(ctx, l.pool, schemas, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `create schema `+tableSchema+`;
			create schema `+storeSchema+`;
			create table `+tableSchema+`.counts (side text, type text, n bigint, primary key (side, type));
			create table `+tableSchema+`.checkpoint (side text primary key, position bigint)`, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// close removes what the lab created, and nothing else.
func (l *lab) close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if l.store != nil {
		l.store.Close()
	}
	if len(l.created) > 0 {
		err = program.Remove(ctx, l.pool, l.created)
		l.created = nil
	}
	if l.pool != nil {
		l.pool.Close()
	}
	return err
}

// connect returns a connection that is not the pool's, and what closes it.
func (l *lab) connect(ctx context.Context) (*pgx.Conn, func(), error) {
	conn, err := pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return conn, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = conn.Close(ctx)
	}, nil
}

// mustHaveCounted fails unless the handler of that side has counted each of so many events once.
func (l *lab) mustHaveCounted(ctx context.Context, side string, events int) error {
	return l.mustBe(ctx, events, side+" counted", "select coalesce(sum(n), 0) from "+tableSchema+".counts where side = $1", side)
}

// mustHold fails unless the store holds so many events.
func (l *lab) mustHold(ctx context.Context, events int) error {
	return l.mustBe(ctx, events, "the store holds", "select count(*) from "+l.events())
}

func (l *lab) mustBe(ctx context.Context, want int, what, sql string, args ...any) error {
	var got int
	if err := l.pool.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
		return fmt.Errorf("verify the count: %w", err)
	}
	if got != want {
		return fmt.Errorf("not verified: %s %d events, not %d", what, got, want)
	}
	return nil
}

// events is the name of the table of events.
func (l *lab) events() string { return l.store.EventsSchema() + ".events" }
