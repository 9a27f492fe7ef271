package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// restoreKey is where a connection keeps the statements that put its session back.
const restoreKey = "millrace restore session"

// restoring puts a session back. role puts the role back within the transaction, where the handler may have left another
// one with SET LOCAL; session does the rest when the transaction has ended.
type restoring struct{ role, session string }

// restorable reports whether a batch has used the connection before.
func restorable(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[restoreKey] != nil }

// restoreSQL returns the statements that put the session of a connection back to what it was when the store used it for
// the first time: settings (those of the pool's AfterConnect hook included), role, no advisory locks of the session, no
// LISTEN, no cursors, no temporary tables. They are sent along with the end of a batch and cost no round trip.
//
// Settings of a host's own, whose names have a dot, cannot be listed. They are put back to what the connection was opened
// with, so that a host gives them in its DSN and not in the hook.
//
// The text stands here and not in a file because it has one part for each setting that was found.
func restoreSQL(ctx context.Context, conn *pgx.Conn) (restoring, error) {
	kept := conn.PgConn().CustomData()
	if r, ok := kept[restoreKey].(restoring); ok {
		return r, nil
	}
	rows, err := conn.Query(ctx, sessionSettings, pgx.QueryExecModeExec)
	if err != nil {
		return restoring{}, err
	}
	var sql strings.Builder
	var name, setting, role string
	sql.WriteString("reset session authorization; reset all; ")
	_, err = pgx.ForEachRow(rows, []any{&name, &setting, &role}, func() error {
		if name != "" {
			fmt.Fprintf(&sql, "select set_config(%s, %s, false); ", literal(name), literal(setting))
		}
		return nil
	})
	if err != nil {
		return restoring{}, err
	}
	fmt.Fprintf(&sql, "select set_config('role', %s, false), pg_advisory_unlock_all(); unlisten *; close all; discard temp", literal(role))
	r := restoring{role: fmt.Sprintf("select set_config('role', %s, true)", literal(role)), session: sql.String()}
	kept[restoreKey] = r
	return r, nil
}

// literal quotes s as an SQL string; the server was checked to take backslashes as they are.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
