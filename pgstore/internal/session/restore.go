// Package session records and restores the state of the server's sessions that batches use, and finds out whether a
// pooler lends them.
package session

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/sqlfile"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// restoreKey is where a connection keeps its Restore.
const restoreKey = "millrace restore session"

//go:embed queries/*.sql
var queryFiles embed.FS

var queries = sqlfile.Load(queryFiles)

// Restore has the statements that restore a session's state.
type Restore struct {
	// User restores the session's user and role within the transaction.
	User string
	// Session restores the rest after the transaction. State does so without Unlock.
	Session, State string
	// LocalUser and Statements do what User and Session do, where statements are prepared one by one. Expressions are
	// the rest of Statements, for a statement that follows them. LocalUser and Expressions are lists of expressions.
	LocalUser, Expressions string
	Statements             []string
	// PID is the session's process, which the connection does not know behind a pooler.
	PID uint32
}

// Unlock is an expression that releases the advisory locks of the session.
const Unlock = "pg_advisory_unlock_all()"

// setting is a row of session_settings.
type setting struct {
	name, value, user, role string
	pid                     uint32
}

// Used reports whether Of was called for the connection before.
func Used(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[restoreKey] != nil }

// Of returns the statements that restore the session of a connection to its state at the first call of Of: settings,
// session user and role (those of the pool's AfterConnect hook included), no advisory locks of the session, no LISTEN,
// no cursors, no temporary tables. They are sent along with the end of a batch and cost no round trip.
//
// The session user is set by name: RESET would return a connection that the hook lowered to its login role. Settings
// are restored as the login role, before the session is lowered, since the lower role may not set them.
//
// A host's own settings, whose names have a dot, cannot be listed. They are reset to their values when the connection
// was opened, so a host sets them in its DSN and not in a hook.
func Of(ctx context.Context, conn *pgx.Conn) (Restore, error) {
	kept := conn.PgConn().CustomData()
	if r, ok := kept[restoreKey].(Restore); ok {
		return r, nil
	}
	rows, _ := conn.Query(ctx, queries.Text("session_settings"), pgx.QueryExecModeExec)
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

// restoreTo returns the statements that put a session back to the settings that were found in it. The text is here and
// not in a file because it has one part for each setting. A setting that RESET restores needs no other statement.
func restoreTo(found []setting) Restore {
	var last setting
	list := []string{"reset session authorization", "reset all"}
	for _, last = range found {
		if last.name != "" {
			name, value := sqltext.String(last.name), sqltext.String(last.value)
			list = append(list, fmt.Sprintf("select set_config(%s, %s, false) where current_setting(%s) <> %s",
				name, value, name, value))
		}
	}
	// As commands and not as calls of set_config, which the server would have to plan.
	setUser := func(scope string) string {
		return fmt.Sprintf("set %s session authorization %s; set %s role %s", scope, sqltext.String(last.user), scope,
			sqltext.String(last.role))
	}
	// Where statements are prepared, one call costs less than several commands.
	callUser := func(local bool) string {
		return fmt.Sprintf("pg_catalog.set_config('session_authorization', %s, %t), pg_catalog.set_config('role', %s, %t)",
			sqltext.String(last.user), local, sqltext.String(last.role), local)
	}
	const lasting = "unlisten *; close all; discard temp"
	state := strings.Join(append(slices.Clone(list), setUser("session"), lasting), "; ")
	statements := append(list, strings.Split(lasting, "; ")...)
	if len(found) == 1 {
		statements = statements[1:] // any user may reset all
	}
	return Restore{
		User: setUser("local"), Session: state + "; select " + Unlock, State: state, PID: last.pid,
		LocalUser: callUser(true), Expressions: callUser(false) + ", pg_catalog." + Unlock, Statements: statements,
	}
}

// Pooled remembers the sessions of a pooler, and the settings that were made in any of them. Listing all settings of a
// session takes some 30 times as long as reading these few, so it is done once for each session. A setting that another
// client makes in a session later is reset by a batch, unless it is listed here.
type Pooled struct {
	mu    sync.Mutex
	known map[uint32]struct{}
	names []string
}

// mostSessions is how many sessions are remembered. Poolers replace theirs from time to time.
const mostSessions = 1000

// reported are the settings that the server reports to its client when they change. A pooler sets them for each client.
var reported = []string{
	"application_name", "client_encoding", "DateStyle", "IntervalStyle", "standard_conforming_strings", "TimeZone",
}

// Begin begins a transaction by the statement begin, and returns what restores the settings that its session has now.
func (p *Pooled) Begin(ctx context.Context, conn *pgx.Conn, begin string) (Restore, error) {
	found, err := readSettings(ctx, conn, begin+"; "+p.query())
	if err != nil {
		return Restore{}, err
	}
	if p.knows(found[0].pid) {
		return restoreTo(found), nil
	}
	found, err = readSettings(ctx, conn, queries.Text("session_settings"))
	if err != nil {
		return Restore{}, err
	}
	p.learn(found)
	return restoreTo(found), nil
}

func (p *Pooled) query() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = slices.Clone(reported)
	}
	return sqltext.Fill(queries.Text("pooled_settings"), "{names}", sqltext.String(string(wire.TextArray(p.names))))
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
		if s.name != "" && !slices.ContainsFunc(p.names,
			func(name string) bool { return strings.EqualFold(name, s.name) }) {
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
		found[i] = setting{
			name: string(row[0]), value: string(row[1]), user: string(row[2]), role: string(row[3]), pid: uint32(pid),
		}
	}
	return found, nil
}
