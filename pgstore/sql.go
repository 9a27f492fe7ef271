package pgstore

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// The statements that name no schema and are sent often. Those of opening and migrating are read when they are needed.
var (
	backendPID      = queryText("backend_pid")
	beginBatch      = queryText("begin_batch")
	beginDurable    = queryText("begin_durable")
	beginInTx       = queryText("begin_in_tx")
	endLastSession  = queryText("end_last_session")
	endLeftovers    = queryText("end_leftovers")
	lockedEvents    = queryText("locked_events")
	notifyWake      = queryText("notify_wake")
	noJIT           = queryText("no_jit")
	ownSession      = queryText("own_session")
	ping            = queryText("ping")
	pooledSettings  = queryText("pooled_settings")
	probeBegin      = queryText("probe_begin")
	probeSpace      = queryText("probe_space")
	sessionLock     = queryText("session_lock")
	sessionSettings = queryText("session_settings")
	waitsForLock    = queryText("waits_for_lock")
)

// query returns the statement of queries/name.sql with the quoted schemas in place of {control} and {tenant}.
func query(name, control, tenant string) string {
	return inSchemas(queryText(name), control, tenant)
}

// queryText returns the text of queries/name.sql. It panics where there is no such file: that is a mistake in this
// package.
func queryText(name string) string {
	raw, err := queryFiles.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return withoutComments(string(raw))
}

// inSchemas puts the quoted schemas in place of {control} and {tenant}.
func inSchemas(sql, control, tenant string) string {
	return strings.NewReplacer("{control}", quote(control), "{tenant}", quote(tenant)).Replace(sql)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// withoutComments drops the lines that only comment, which the server need not parse with every call.
func withoutComments(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			lines = append(lines, trimmed)
		}
	}
	return strings.Join(lines, "\n")
}
