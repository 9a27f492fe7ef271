// Package session knows the server's sessions that batches use: what a session was before, how it is put back, and whether a
// pooler lends it.
package session

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// restoreKey is where a connection keeps its Restore.
const restoreKey = "millrace restore session"

//go:embed queries/*.sql
var queryFiles embed.FS

var (
	backendPID      = sqltext.Load(queryFiles, "backend_pid")
	pooledSettings  = sqltext.Load(queryFiles, "pooled_settings")
	sessionSettings = sqltext.Load(queryFiles, "session_settings")
)

// Restore has the statements that put a session back.
type Restore struct {
	// User restores the session's user and role within the transaction.
	User string
	// Session restores the rest after the transaction.
	Session string
	// PID is the session's process, which the connection does not know behind a pooler.
	PID uint32
}

// setting is a row of session_settings.
type setting struct {
	name, value, user, role string
	pid                     uint32
}

// Used reports whether Of was called for the connection before.
func Used(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[restoreKey] != nil }

// Of returns the statements that put the session of a connection back to what it was when Of was called first: settings,
// session user and role (those of the pool's AfterConnect hook included), no advisory locks of the session, no LISTEN, no
// cursors, no temporary tables. They are sent along with the end of a batch and cost no round trip.
//
// The session user is set by name: RESET would return a connection that the hook lowered to its login role. Settings are
// restored as the login role, before the session is lowered, since the lower role may not set them.
//
// A host's own settings, whose names have a dot, cannot be listed. They are reset to their values when the connection was
// opened, so a host sets them in its DSN and not in a hook.
func Of(ctx context.Context, conn *pgx.Conn) (Restore, error) {
	kept := conn.PgConn().CustomData()
	if r, ok := kept[restoreKey].(Restore); ok {
		return r, nil
	}
	rows, _ := conn.Query(ctx, sessionSettings, pgx.QueryExecModeExec)
	var found []setting
	var s setting
	_, err := pgx.ForEachRow(rows, []any{&s.name, &s.value, &s.user, &s.role, &s.pid}, func() error {
		found = append(found, s)
		return nil
	})
	if err != nil {
		return Restore{}, err
	}
	r := restoreTo(found)
	kept[restoreKey] = r
	return r, nil
}

// restoreTo returns the statements that put a session back to the settings that were found in it. The text is here and not in
// a file because it has one part for each setting. A setting that RESET restores needs no other statement.
func restoreTo(found []setting) Restore {
	var sql strings.Builder
	var last setting
	sql.WriteString("reset session authorization; reset all; ")
	for _, last = range found {
		if last.name != "" {
			name, value := sqltext.String(last.name), sqltext.String(last.value)
			fmt.Fprintf(&sql, "select set_config(%s, %s, false) where current_setting(%s) <> %s; ", name, value, name, value)
		}
	}
	setUser := func(local bool) string {
		return fmt.Sprintf("select set_config('session_authorization', %s, %t), set_config('role', %s, %t)", sqltext.String(last.user), local, sqltext.String(last.role), local)
	}
	sql.WriteString(setUser(false) + "; select pg_advisory_unlock_all(); unlisten *; close all; discard temp")
	return Restore{User: setUser(true), Session: sql.String(), PID: last.pid}
}
