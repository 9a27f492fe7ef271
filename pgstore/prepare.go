package pgstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// preparedIdle is how many reads (or appends) of any tenants take the place of a tenant that had none meanwhile: it was
// archived, its projections run elsewhere, or another process dropped it. A smaller number would prepare again and
// again where many tenants are equally busy, as a cache that is too small does.
const preparedIdle = 1000

// preparedPlaces are the places of the tenants whose statements stay prepared: the first preparedTenants that use them.
// A tenant keeps its place while it uses it.
type preparedPlaces struct {
	mu     sync.Mutex
	places [preparedTenants]preparedPlace
	uses   int64
}

// preparedPlace has the key of a tenant, empty if the place is free, its last use, counted in uses of all, and the
// statements that were used.
type preparedPlace struct {
	key        string
	last       int64
	statements map[string]tenantStatement
}

// tenantStatement is a statement on the tables of one tenant.
type tenantStatement struct{ name, sql string }

// of returns the place of a tenant, or -1. It counts as a use.
func (p *preparedPlaces) of(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.use(key)
}

// use is of. The caller holds p.mu.
func (p *preparedPlaces) use(key string) int {
	p.uses++
	at := p.find(key)
	if at >= 0 {
		p.places[at].last = p.uses
	}
	return at
}

func (p *preparedPlaces) find(key string) int {
	return slices.IndexFunc(p.places[:], func(place preparedPlace) bool { return place.key == key })
}

// add gives a tenant that exists a place, if one is free or was not used for long.
func (p *preparedPlaces) add(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.find(key) >= 0 {
		return
	}
	at := p.find("")
	if at < 0 {
		at = slices.IndexFunc(p.places[:], func(place preparedPlace) bool { return p.uses-place.last > preparedIdle })
	}
	if at >= 0 {
		p.places[at] = preparedPlace{key: key, last: p.uses}
	}
}

// remove frees the place of a tenant that was dropped.
func (p *preparedPlaces) remove(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.find(key); at >= 0 {
		p.places[at] = preparedPlace{}
	}
}

// preparedStatements are statements of one kind on tenants' tables that stay prepared in the sessions of the pool. The
// server plans any other anew, which takes most of a short one. A statement is prepared by the name of its place, so
// that a session replaces those of a tenant that was dropped.
type preparedStatements struct {
	preparedPlaces
	prefix string
}

// stores counts the stores of the process, which may share a pool.
var stores atomic.Int64

// name returns the name of the only statement of a key, empty if it is not prepared.
func (p *preparedStatements) name(key string) string {
	at := p.of(key)
	if at < 0 {
		return ""
	}
	return p.at(at)
}

// at returns the name of a place.
func (p *preparedStatements) at(place int) string { return p.prefix + "_" + strconv.Itoa(place) }

// statement returns a statement of a tenant. Its name is empty if it is not prepared.
func (p *preparedStatements) statement(t *Tenant, statement string) tenantStatement {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.use(t.name)
	if at < 0 {
		return tenantStatement{}
	}
	place := &p.places[at]
	s, ok := place.statements[statement]
	if !ok {
		if place.statements == nil {
			place.statements = make(map[string]tenantStatement)
		}
		s = tenantStatement{p.at(at) + "_" + strings.ReplaceAll(statement, " ", "_"), t.sql(statement)}
		place.statements[statement] = s
	}
	return s
}

// beginReadName is the name of begin_read.sql as a prepared statement.
const beginReadName = "millrace_begin_read"

// execModeKey is the key of a session's default mode in its custom data.
const execModeKey = "millrace_exec_mode"

// keepsPrepared reports whether a session may keep prepared statements: not behind a pooler that lends it, and only in
// the pool's default mode.
func (db *database) keepsPrepared(conn *pgx.Conn) bool {
	if db.server.pooling.Lends {
		return false
	}
	held := conn.PgConn().CustomData()
	mode, ok := held[execModeKey].(pgx.QueryExecMode)
	if !ok {
		mode = conn.Config().DefaultQueryExecMode // a copy of the whole configuration
		held[execModeKey] = mode
	}
	return mode == pgx.QueryExecModeCacheStatement
}

// prepareAll prepares statements in a session, unless it has them. The arguments are names and texts. If the session
// has another text of a name, it is replaced.
func prepareAll(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	held := conn.PgConn().CustomData()
	for pair := range slices.Chunk(statements, 2) {
		name, sql := pair[0], pair[1]
		if old, ok := held[name]; ok && old != sql {
			if err := conn.Deallocate(ctx, name); err != nil {
				return err
			}
		}
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			return err
		}
		held[name] = sql
	}
	return nil
}

// forgetPrepared reports whether an error is due to a prepared statement: the session has lost it or had it already, or
// the table has changed since. The statements are forgotten, so that they are prepared anew when they are used next.
func forgetPrepared(ctx context.Context, conn *pgx.Conn, err error, names ...string) bool {
	if conn.IsClosed() || !pgerr.Is(err, pgerr.NotSupported, pgerr.NoPreparedStatement, pgerr.DuplicateStatement) {
		return false
	}
	for _, name := range names {
		if conn.Deallocate(ctx, name) != nil {
			return false
		}
	}
	return true
}
