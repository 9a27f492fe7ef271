package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errExecMode means that the pool's way to send statements does not work behind its pooler.
var errExecMode = errors.New("a pooler in transaction mode stands between the pool and the server")

const (
	// poolerTime bounds the questions that find out how a pooler works.
	poolerTime = 10 * time.Second
	// secondConnectionTime bounds what needs a second connection through the pooler, which may have none left.
	secondConnectionTime = 3 * time.Second
	// noticeTime is how long a notification may take before it is taken for lost.
	noticeTime = time.Second
)

// pooling is what stands between connections and the server's sessions. The zero value is nothing.
type pooling struct {
	// lends means that a server's session serves other connections, too, from one transaction to the next: nothing that is
	// set in it lasts, and nothing that others set is kept from it.
	lends bool
	// forgets means that a prepared statement may not be there when it is used, or be there before it was made.
	forgets bool
}

// checkMode refuses the ways to send statements that do not work there.
func (p pooling) checkMode(mode pgx.QueryExecMode) error {
	switch {
	case mode == pgx.QueryExecModeDescribeExec && p.lends:
	case mode == pgx.QueryExecModeCacheStatement && p.forgets:
	default:
		return nil
	}
	return fmt.Errorf("%w, where pgx's mode %q does not work: what it prepares belongs to another client a moment later; "+
		"set default_query_exec_mode=exec (or cache_describe) in the pool's DSN, or max_prepared_statements in PgBouncer 1.21 or newer", errExecMode, mode)
}

// checkPooling finds out what stands between the pool and the server, and refuses what does not work there.
func (s *Store) checkPooling(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	defer conn.Release()
	s.pooling, err = findPooling(ctx, conn.Conn(), func(ctx context.Context) (*pgx.Conn, error) { return s.dial(ctx, "") })
	if err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	return s.pooling.checkMode(conn.Conn().Config().DefaultQueryExecMode)
}

// Pooled reports whether a pooler in transaction mode stands between the pool and the server, as found when the store was
// opened.
func (s *Store) Pooled() bool { return s.pooling.lends }

// findPooling finds out whether and how a pooler stands between conn and the server. The same pooler must be behind dial. It
// asks by what the pooler does, since one does not say what it is: it hides the process id of the session that it lends.
// The error names a pooler that does not let transactions through.
func findPooling(ctx context.Context, conn *pgx.Conn, dial func(context.Context) (*pgx.Conn, error)) (p pooling, err error) {
	ctx, cancel := context.WithTimeout(ctx, poolerTime)
	defer cancel()
	pid, err := sessionPID(ctx, conn)
	if err != nil || pid == conn.PgConn().PID() {
		return pooling{}, err
	}
	kept, err := keepsNames(ctx, conn)
	if err != nil {
		return pooling{}, err
	}
	if p.lends, err = lendsSession(ctx, conn, pid, dial); err != nil {
		return pooling{}, err
	}
	p.forgets = p.lends && kept
	return p, nil
}

// sessionPID returns the process id of the server's session that a transaction on conn gets.
func sessionPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, backendPID, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// keepsNames reports whether a prepared statement reaches the server under the name that its client gave it. Then it is that
// session's alone. A pooler that follows prepared statements gives them names of its own. Nothing is left behind.
func keepsNames(ctx context.Context, conn *pgx.Conn) (kept bool, err error) {
	if err := conn.PgConn().Exec(ctx, "begin").Close(); err != nil {
		if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) {
			return false, fmt.Errorf("the pooler refuses transactions, as statement pooling does, which cannot work here: set pool_mode=transaction or session: %w", err)
		}
		return false, err
	}
	name := "millrace_" + uuid.NewString()
	if _, err := conn.PgConn().Prepare(ctx, name, "select 1", nil); err != nil {
		return false, err
	}
	if err := conn.QueryRow(ctx, queryText("named_statement"), pgx.QueryExecModeExec, name).Scan(&kept); err != nil {
		return false, err
	}
	if err := conn.PgConn().Deallocate(ctx, name); err != nil {
		return false, err
	}
	return kept, conn.PgConn().Exec(ctx, "commit").Close()
}

// lendsSession reports whether the pooler gives the session pid, which conn had last, to a second connection, or gives conn
// another one. Where neither is seen, only a notification that arrives shows that conn has its session to itself: an idle
// pooler with several processes would look the same. In doubt the answer is yes, which works everywhere.
func lendsSession(ctx context.Context, conn *pgx.Conn, pid uint32, dial func(context.Context) (*pgx.Conn, error)) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, secondConnectionTime)
	defer cancel()
	second, err := dial(limited)
	if err != nil {
		return inDoubt(ctx, err)
	}
	defer func() { _ = second.Close(context.WithoutCancel(ctx)) }()
	const rounds = 3
	for range rounds {
		theirs, err := sessionPID(limited, second)
		if err != nil {
			return inDoubt(ctx, err)
		}
		ours, err := sessionPID(ctx, conn)
		if err != nil {
			return false, err
		}
		if theirs == pid || ours != pid {
			return true, nil
		}
	}
	arrived, err := hears(ctx, conn, second)
	return !arrived, err
}

// inDoubt takes a second connection that is not to be had for a pooler that lends sessions and has none left.
func inDoubt(ctx context.Context, err error) (lends bool, _ error) {
	if ctx.Err() != nil {
		return false, err
	}
	return true, nil
}

// hears reports whether conn gets what second notifies.
func hears(ctx context.Context, conn, second *pgx.Conn) (arrived bool, err error) {
	channel := quote("millrace_" + uuid.NewString())
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return false, err
	}
	if _, err := second.Exec(ctx, "notify "+channel); err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, noticeTime)
	_, err = conn.WaitForNotification(limited)
	cancel()
	if err != nil && (ctx.Err() != nil || conn.IsClosed()) {
		return false, err
	}
	_, unlistenErr := conn.Exec(ctx, "unlisten "+channel)
	return err == nil, unlistenErr
}
