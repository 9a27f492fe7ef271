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
// one with SET LOCAL; session does the rest when the transaction has ended. pid is the session's process, which behind a
// pooler the connection does not know.
type restoring struct {
	role, session string
	pid           uint32
}

// setting is a row of session_settings.
type setting struct {
	name, value, role string
	pid               uint32
}

// restoreSQL returns the statements that put the session of a connection back to what it was when the store used it for
// the first time: settings (those of the pool's AfterConnect hook included), role, no advisory locks of the session, no
// LISTEN, no cursors, no temporary tables. They are sent along with the end of a batch and cost no round trip.
//
// Settings of a host's own, whose names have a dot, cannot be listed. They are put back to what the connection was opened
// with, so that a host gives them in its DSN and not in the hook.
func restoreSQL(ctx context.Context, conn *pgx.Conn) (restoring, error) {
	kept := conn.PgConn().CustomData()
	if r, ok := kept[restoreKey].(restoring); ok {
		return r, nil
	}
	rows, err := conn.Query(ctx, sessionSettings, pgx.QueryExecModeExec)
	if err != nil {
		return restoring{}, err
	}
	var found []setting
	var s setting
	_, err = pgx.ForEachRow(rows, []any{&s.name, &s.value, &s.role, &s.pid}, func() error {
		found = append(found, s)
		return nil
	})
	if err != nil {
		return restoring{}, err
	}
	r := restoreTo(found)
	kept[restoreKey] = r
	return r, nil
}

// restoreTo returns the statements that put a session back to the settings that were found in it. The text stands here and
// not in a file because it has one part for each setting. A setting that its reset puts back is left at that.
func restoreTo(found []setting) restoring {
	var sql strings.Builder
	var last setting
	sql.WriteString("reset session authorization; reset all; ")
	for _, last = range found {
		if last.name != "" {
			name, value := literal(last.name), literal(last.value)
			fmt.Fprintf(&sql, "select set_config(%s, %s, false) where current_setting(%s) <> %s; ", name, value, name, value)
		}
	}
	fmt.Fprintf(&sql, "select set_config('role', %s, false), pg_advisory_unlock_all(); unlisten *; close all; discard temp", literal(last.role))
	return restoring{role: fmt.Sprintf("select set_config('role', %s, true)", literal(last.role)), session: sql.String(), pid: last.pid}
}

// literal quotes s as an SQL string; the server was checked to take backslashes as they are.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
