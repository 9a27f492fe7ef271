package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// restoreKey is where a connection keeps the statements that put its session back.
const restoreKey = "millrace restore session"

// restoring has the statements that restore a session. user restores the session's user and role within the transaction.
// session restores the rest after the transaction. pid is the session's process, which the connection does not know behind a
// pooler.
type restoring struct {
	user, session string
	pid           uint32
}

// setting is a row of session_settings.
type setting struct {
	name, value, user, role string
	pid                     uint32
}

// restorable reports whether a batch has used the connection before.
func restorable(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[restoreKey] != nil }

// restoreSQL returns the statements that put the session of a connection back to what it was when the store used it for
// the first time: settings, session user and role (those of the pool's AfterConnect hook included), no advisory locks of the
// session, no LISTEN, no cursors, no temporary tables. They are sent along with the end of a batch and cost no round trip.
//
// The session user is set by name: RESET would return a connection that the hook lowered to its login role. Settings are
// restored as the login role, before the session is lowered, since the lower role may not set them.
//
// A host's own settings, whose names have a dot, cannot be listed. They are reset to their values when the connection was
// opened, so a host sets them in its DSN and not in a hook.
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
	_, err = pgx.ForEachRow(rows, []any{&s.name, &s.value, &s.user, &s.role, &s.pid}, func() error {
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

// restoreTo returns the statements that put a session back to the settings that were found in it. The text is here and not in
// a file because it has one part for each setting. A setting that RESET restores needs no other statement.
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
	setUser := func(local bool) string {
		return fmt.Sprintf("select set_config('session_authorization', %s, %t), set_config('role', %s, %t)", literal(last.user), local, literal(last.role), local)
	}
	sql.WriteString(setUser(false) + "; select pg_advisory_unlock_all(); unlisten *; close all; discard temp")
	return restoring{user: setUser(true), session: sql.String(), pid: last.pid}
}

// literal quotes s as an SQL string; the server was checked to take backslashes as they are.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
