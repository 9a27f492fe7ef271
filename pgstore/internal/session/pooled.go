package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// Pooled remembers the sessions of a pooler, and the settings that were made in any of them. Listing
// all settings of a session takes some 30 times as long as reading these few, so it is done once for each session. A setting
// that another client makes in a session later is reset by a batch, unless it is listed here.
type Pooled struct {
	mu    sync.Mutex
	known map[uint32]struct{}
	names []string
}

// mostSessions is how many sessions are remembered. Poolers replace theirs from time to time.
const mostSessions = 1000

// reported are the settings that the server reports to its client when they change. A pooler sets them for each client.
var reported = []string{"application_name", "client_encoding", "DateStyle", "IntervalStyle", "standard_conforming_strings", "TimeZone"}

// Begin begins a transaction by the statement begin, and returns what restores the settings that its session has now.
func (p *Pooled) Begin(ctx context.Context, conn *pgx.Conn, begin string) (Restore, error) {
	found, err := readSettings(ctx, conn, begin+"; "+p.query())
	if err == nil && !p.knows(found[0].pid) {
		if found, err = readSettings(ctx, conn, sessionSettings); err == nil {
			p.learn(found)
		}
	}
	if err != nil {
		return Restore{}, err
	}
	return restoreTo(found), nil
}

func (p *Pooled) query() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = slices.Clone(reported)
	}
	return sqltext.Fill(pooledSettings, "{names}", sqltext.String(string(wire.TextArray(p.names))))
}

func (p *Pooled) knows(pid uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.known[pid]
	return known
}

func (p *Pooled) learn(found []setting) {
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
