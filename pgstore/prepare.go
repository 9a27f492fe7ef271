package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// preparedReads are the statements on tenants' events that stay prepared in the sessions of the pool: those that read the tails of
// the first preparedTenants tenants. The server plans any other read anew, which takes most of a short read.
type preparedReads struct {
	mu    sync.RWMutex
	names map[string]string // by the text
}

// add adds a statement, while there are fewer than preparedTenants.
func (p *preparedReads) add(sql string) {
	if p.name(sql) != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = make(map[string]string)
	}
	if len(p.names) < preparedTenants {
		p.names[sql] = fmt.Sprintf("millrace_read_%x", uint64(lockKey(sql)))
	}
}

// remove removes a statement of a tenant that was dropped.
func (p *preparedReads) remove(sql string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, sql)
}

// name returns the name of a statement, empty if it is not prepared.
func (p *preparedReads) name(sql string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.names[sql]
}

// beginReadName is the name of begin_read.sql as a prepared statement.
const beginReadName = "millrace_begin_read"

// keepsPrepared reports whether a session may keep prepared statements: not behind a pooler that lends it, and only in the pool's
// default mode.
func (s *Store) keepsPrepared(conn *pgx.Conn) bool {
	return !s.server.pooling.Lends && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// prepareAll prepares statements in a session, unless it has them. The arguments are names and texts.
func prepareAll(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for pair := range slices.Chunk(statements, 2) {
		if _, err := conn.Prepare(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// forgetPrepared reports whether an error is due to a prepared statement: the session has lost it or had it already, or the table
// has changed since. The statements are forgotten, so that they are prepared anew when they are used next.
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
