package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// begin starts the transaction of a batch, and returns the statements that restore its session when it ends.
func (b *batchTx) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, restoring, error) {
	if b.store.pooling.lends {
		return b.beginPooled(ctx, conn)
	}
	restore, err := restoreSQL(ctx, conn)
	if err != nil {
		return nil, restore, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginBatch + "; " + b.setUpSQL()})
	if err != nil {
		b.rollback(ctx, conn, restore)
		closeStandby(ctx, conn, err)
		return nil, restore, err
	}
	return tx, restore, nil
}

// beginPooled is begin where each transaction may have another session. What the session was is read in each of them, which
// costs one round trip more.
func (b *batchTx) beginPooled(ctx context.Context, conn *pgx.Conn) (pgx.Tx, restoring, error) {
	restore, err := b.store.sessions.restoreSQL(ctx, conn)
	var tx pgx.Tx
	if err == nil {
		tx, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: b.setUpSQL()}) // The transaction is begun, and pgx need not know.
	}
	if err != nil {
		b.rollback(ctx, conn, restore)
		closeStandby(ctx, conn, err)
		return nil, restore, err
	}
	return tx, restore, nil
}

// pooledSessions has the sessions of a pooler that a store has seen, and the settings that were made in any of them. Listing
// all settings of a session takes some 30 times as long as reading these few, so it is done once for each session. A setting
// that another client makes in a session later is reset by a batch, unless it is listed here.
type pooledSessions struct {
	mu    sync.Mutex
	known map[uint32]struct{}
	names []string
}

// mostSessions is how many sessions are remembered. Poolers replace theirs from time to time.
const mostSessions = 1000

// reported are the settings that the server reports to its client when they change. A pooler sets them for each client.
var reported = []string{"application_name", "client_encoding", "DateStyle", "IntervalStyle", "standard_conforming_strings", "TimeZone"}

// restoreSQL begins a transaction and returns the statements that restore the settings that its session has now.
func (p *pooledSessions) restoreSQL(ctx context.Context, conn *pgx.Conn) (restoring, error) {
	found, err := readSettings(ctx, conn, beginBatch+"; "+p.query())
	if err == nil && !p.knows(found[0].pid) {
		if found, err = readSettings(ctx, conn, sessionSettings); err == nil {
			p.learn(found)
		}
	}
	if err != nil {
		return restoring{}, err
	}
	return restoreTo(found), nil
}

func (p *pooledSessions) query() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = slices.Clone(reported)
	}
	return fill(pooledSettings, "{names}", literal(string(wire.TextArray(p.names))))
}

func (p *pooledSessions) knows(pid uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.known[pid]
	return known
}

func (p *pooledSessions) learn(found []setting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= mostSessions {
		p.known = make(map[uint32]struct{})
	}
	for _, s := range found {
		p.known[s.pid] = struct{}{}
		if s.name != "" && !slices.ContainsFunc(p.names, func(name string) bool { return strings.EqualFold(name, s.name) }) {
			p.names = append(p.names, s.name)
		}
	}
}

// readSettings reads the rows of the last statement in sql, of which there is one at least.
func readSettings(ctx context.Context, conn *pgx.Conn, sql string) ([]setting, error) {
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	rows := results[len(results)-1].Rows
	if len(rows) == 0 {
		return nil, errors.New("read the session's settings: no rows")
	}
	found := make([]setting, len(rows))
	for i, row := range rows {
		pid, err := strconv.ParseUint(string(row[4]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the session's process id: %w", err)
		}
		found[i] = setting{name: string(row[0]), value: string(row[1]), user: string(row[2]), role: string(row[3]), pid: uint32(pid)}
	}
	return found, nil
}
