package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver of the handwritten code

	"github.com/millrace-go/millrace/event"
)

// createCounts creates the read model of all contenders, and the checkpoints of the handwritten loop.
const createCounts = `create table if not exists counts (contender text, type text, n integer not null, primary key (contender, type)) without rowid;
	create table if not exists checkpoint (contender text primary key, position integer not null) without rowid`

const countTypes = `insert into counts (contender, type, n) select ?1, value, count(*) from json_each(?2) where true group by value
	on conflict (contender, type) do update set n = n + excluded.n`

// countInFile returns the handler of all contenders, with one statement for each batch.
func countInFile(contender string, t *tally) func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
	return func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		t.see(events)
		types, err := typesAsJSON(events)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, countTypes, contender, types)
		return err
	}
}

// typesAsJSON returns the types of events as a JSON array.
func typesAsJSON(events []event.Envelope) (string, error) {
	encoded, err := json.Marshal(typesOf(events))
	return string(encoded), err
}

// fileHand is the handwritten code: one connection to a file of its own, to which it appends, and one to the file of
// the store, from which it reads. All statements are prepared once.
type fileHand struct {
	own, store *sql.DB

	mu      sync.Mutex // of own
	version *sql.Stmt
	insert  *sql.Stmt
}

// handPragmas are the settings of the store.
const handPragmas = "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_pragma=wal_autocheckpoint(4096)"

func openFileHand(ctx context.Context, path, storePath string) (_ *fileHand, err error) {
	h := &fileHand{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	h.own, err = sql.Open("sqlite", "file:"+path+handPragmas)
	if err != nil {
		return nil, err
	}
	h.own.SetMaxOpenConns(1)
	h.store, err = sql.Open("sqlite", "file:"+storePath+handPragmas)
	if err != nil {
		return nil, err
	}
	h.store.SetMaxOpenConns(1)
	_, err = h.own.ExecContext(ctx, createCounts+
		`; create table events (position integer primary key, stream text not null, version integer not null, type text not null,
		body text not null, created_at integer not null, unique (stream, version))`)
	if err != nil {
		return nil, err
	}
	h.version, err = h.own.PrepareContext(ctx,
		"select coalesce(max(version), 0) from events where stream = ?")
	if err != nil {
		return nil, err
	}
	h.insert, err = h.own.PrepareContext(ctx,
		"insert into events (stream, version, type, body, created_at) values (?, ?, ?, ?, ?)")
	return h, err
}

func (h *fileHand) close() error {
	var err error
	for _, db := range []*sql.DB{h.own, h.store} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// append appends one event in a transaction of its own.
func (h *fileHand) append(ctx context.Context, stream string) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tx, err := h.own.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	var version int64
	if err := tx.StmtContext(ctx, h.version).QueryRowContext(ctx, stream).Scan(&version); err != nil {
		return 0, err
	}
	result, err := tx.StmtContext(ctx, h.insert).ExecContext(ctx, stream, version+1, probe.Type, string(probe.Body),
		time.Now().UnixMicro())
	if err != nil {
		return 0, err
	}
	position, err := result.LastInsertId()
	return position, errors.Join(err, tx.Commit())
}

func (h *fileHand) count(ctx context.Context) (n int, err error) {
	err = h.own.QueryRowContext(ctx, "select count(*) from events").Scan(&n)
	return n, err
}

// counted returns a verification of the read model of the handwritten file.
func (h *fileHand) counted(contender string, want int) verify {
	return fileCounted(h.own, contender, want)
}

// fileLoop is the handwritten loop: read after the checkpoint, apply, advance the checkpoint.
type fileLoop struct {
	db *sql.DB
	// base is added to positions for the keys of events.
	base               int64
	read, apply, moved *sql.Stmt
	name               string
	position           int64
	tally              tally
}

// firstID is the id of the event of the first tenant at position 0.
const firstID = 1 << 40

// The limit is no parameter: SQLite would plan the statement anew at each run.
var (
	readStoreEvents = fmt.Sprintf(`select position, stream_id, version, type, body, headers, causation_id, correlation_id, created_at
		from millrace_events where id > ? order by id limit %d`, handBatch)
	readOwnEvents = fmt.Sprintf("select position, stream, version, type, body, null, null, null, created_at from events where position > ? order by position limit %d",
		handBatch)
)

// loop makes a loop over the events of the store or over the handwritten ones, which begins at the first event or after
// the last one.
func (h *fileHand) loop(ctx context.Context, db *sql.DB, name string, atEnd bool) (*fileLoop, error) {
	l := &fileLoop{db: db, base: firstID, name: name}
	read, last := readStoreEvents, "select coalesce(max(position), 0) from millrace_events"
	if db == h.own {
		l.base, read, last = 0, readOwnEvents, "select coalesce(max(position), 0) from events"
	}
	if atEnd {
		if err := db.QueryRowContext(ctx, last).Scan(&l.position); err != nil {
			return nil, err
		}
	}
	if _, err := db.ExecContext(ctx, "insert into checkpoint values (?, ?)", name, l.position); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&l.read, read},
		{&l.apply, countTypes},
		{&l.moved, "update checkpoint set position = ?2 where contender = ?1"},
	} {
		var err error
		*s.stmt, err = db.PrepareContext(ctx, s.text)
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// step reads, applies and commits one batch, and returns its number of events.
func (l *fileLoop) step(ctx context.Context) (int, error) {
	events, err := l.events(ctx)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	l.tally.see(events)
	types, err := typesAsJSON(events)
	if err != nil {
		return 0, err
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.StmtContext(ctx, l.apply).ExecContext(ctx, l.name, types); err != nil {
		return 0, err
	}
	last := events[len(events)-1].Position
	if _, err := tx.StmtContext(ctx, l.moved).ExecContext(ctx, l.name, last); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	l.position = last
	return len(events), nil
}

func (l *fileLoop) events(ctx context.Context) (events []event.Envelope, err error) {
	rows, err := l.read.QueryContext(ctx, l.base+l.position)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e event.Envelope
		var headers, causation, correlation sql.NullString
		var created int64
		if err := rows.Scan(&e.Position, &e.Stream, &e.Version, &e.Type, (*[]byte)(&e.Body), &headers, &causation,
			&correlation, &created); err != nil {
			return nil, err
		}
		e.Time = time.UnixMicro(created)
		events = append(events, e)
	}
	return events, rows.Err()
}

// follow applies events when it is woken, and sends its position unless applied is nil, until ctx ends.
func (l *fileLoop) follow(ctx context.Context, woken <-chan struct{}, applied chan<- int64) error {
	for {
		select {
		case <-woken:
		case <-ctx.Done():
			return nil
		}
		// A step is not interrupted, so that it is either committed or not begun.
		if _, err := l.step(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if applied == nil {
			continue
		}
		select {
		case applied <- l.position:
		case <-ctx.Done():
			return nil
		}
	}
}
