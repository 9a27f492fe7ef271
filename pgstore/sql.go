package pgstore

import (
	"embed"
	"strings"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// The statements that name no schema and are sent often. Those of opening and migrating are read when they are needed.
var (
	beginBatch     = queryText("begin_batch")
	beginDurable   = queryText("begin_durable")
	beginInTx      = queryText("begin_in_tx")
	endLastSession = queryText("end_previous_session")
	endLeftovers   = queryText("end_zombie_batches")
	lockedEvents   = queryText("locked_events")
	notifyWake     = queryText("notify_wake")
	noJIT          = queryText("disable_jit")
	ownSession     = queryText("reset_session")
	ping           = queryText("ping")
	probeBegin     = queryText("begin_probe")
	probeSpace     = queryText("probe_space")
	sessionLock    = queryText("session_lock")
	waitsForLock   = queryText("waits_for_lock")
)

// queryNames returns the names of all statements.
func queryNames() (names []string) {
	entries, err := queryFiles.ReadDir("queries")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".sql"))
	}
	return names
}

// queryText returns the text of queries/name.sql.
func queryText(name string) string { return sqltext.Load(queryFiles, name) }

// inSchemas puts the quoted schemas in place of {control} and {tenant}.
func inSchemas(sql, control, tenant string) string {
	return sqltext.Fill(sql, "{control}", sqltext.Name(control), "{tenant}", sqltext.Name(tenant))
}
