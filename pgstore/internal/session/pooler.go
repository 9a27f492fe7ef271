package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// ErrExecMode is returned when the pool's default_query_exec_mode does not work behind its pooler.
var ErrExecMode = errors.New("a pooler in transaction mode stands between the pool and the server")

const (
	// poolerTime bounds the statements that find out how a pooler works.
	poolerTime = 10 * time.Second
	// secondConnectionTime bounds the checks that need a second connection through the pooler, which may have none
	// left.
	secondConnectionTime = 3 * time.Second
	// noticeTime is how long a notification is waited for before it counts as lost.
	noticeTime = time.Second
)

// Pooling describes the pooler between connections and the server's sessions. The zero value is no pooler.
type Pooling struct {
	// Lends means that another connection may get the server's session after each transaction: settings do not last in
	// it, and settings of other clients show in it.
	Lends bool
	// Forgets means that a prepared statement may be missing when it is used, or exist before it is prepared.
	Forgets bool
}

// CheckMode returns an error if the mode does not work behind the pooler.
func (p Pooling) CheckMode(mode pgx.QueryExecMode) error {
	switch {
	case mode == pgx.QueryExecModeDescribeExec && p.Lends:
	case mode == pgx.QueryExecModeCacheStatement && p.Forgets:
	default:
		return nil
	}
	return fmt.Errorf("%w, where pgx's mode %q does not work, since the session serves other clients after each transaction: "+
		"set default_query_exec_mode=exec (or cache_describe) in the pool's DSN, or max_prepared_statements in PgBouncer 1.21 or newer", ErrExecMode, mode)
}

// FindPooling finds out whether and how a pooler stands between conn and the server. The same pooler must be behind
// dial. A pooler does not say what it is, but shows by its behaviour: it hides the process id of the session that it
// lends. Statement pooling is an error.
func FindPooling(ctx context.Context, conn *pgx.Conn,
	dial func(context.Context) (*pgx.Conn, error)) (p Pooling, err error) {
	ctx, cancel := context.WithTimeout(ctx, poolerTime)
	defer cancel()
	pid, err := sessionPID(ctx, conn)
	if err != nil || pid == conn.PgConn().PID() {
		return Pooling{}, err
	}
	kept, err := keepsNames(ctx, conn)
	if err != nil {
		return Pooling{}, err
	}
	p.Lends, err = lendsSession(ctx, conn, pid, dial)
	if err != nil {
		return Pooling{}, err
	}
	p.Forgets = p.Lends && kept
	return p, nil
}

// sessionPID returns the process id of the server's session that a transaction on conn gets.
func sessionPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, queries.Text("backend_pid"), pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// keepsNames reports whether a prepared statement reaches the server under its client's name, and so exists in one
// session only. A pooler that tracks prepared statements renames them. keepsNames leaves no statement behind.
func keepsNames(ctx context.Context, conn *pgx.Conn) (kept bool, err error) {
	tx, err := conn.Begin(ctx)
	if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) {
		return false,
			fmt.Errorf("the pooler refuses transactions, as with pool_mode=statement: set pool_mode=transaction or session: %w", err)
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	name := "millrace_" + uuid.NewString()
	if _, err := conn.PgConn().Prepare(ctx, name, queries.Text("backend_pid"), nil); err != nil {
		return false, err
	}
	if err := conn.QueryRow(ctx, queries.Text("named_statement"), pgx.QueryExecModeExec, name).Scan(&kept); err != nil {
		return false, err
	}
	if err := conn.PgConn().Deallocate(ctx, name); err != nil {
		return false, err
	}
	return kept, tx.Commit(ctx)
}

// lendsSession reports whether the pooler gives the session pid, which conn had last, to a second connection, or gives
// conn another session. If it does neither, it may still be an idle pooler with several processes. Only a notification
// that arrives proves that conn keeps its session. In doubt the answer is yes, which works everywhere.
func lendsSession(ctx context.Context, conn *pgx.Conn, pid uint32,
	dial func(context.Context) (*pgx.Conn, error)) (bool, error) {
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

// inDoubt treats a failure to get a second connection as a pooler that lends sessions and has none left.
func inDoubt(ctx context.Context, err error) (Lends bool, _ error) {
	if ctx.Err() != nil {
		return false, err
	}
	return true, nil
}

// hears reports whether conn receives a notification from second.
func hears(ctx context.Context, conn, second *pgx.Conn) (arrived bool, err error) {
	channel := sqltext.Name("millrace_" + uuid.NewString())
	on := func(name string) string { return sqltext.Fill(queries.Text(name), "{channel}", channel) }
	if _, err := conn.Exec(ctx, on("listen")); err != nil {
		return false, err
	}
	if _, err := second.Exec(ctx, on("notify")); err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, noticeTime)
	_, err = conn.WaitForNotification(limited)
	cancel()
	if err != nil && (ctx.Err() != nil || conn.IsClosed()) {
		return false, err
	}
	_, unlistenErr := conn.Exec(ctx, on("unlisten"))
	return err == nil, unlistenErr
}
