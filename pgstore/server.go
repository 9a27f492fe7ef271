package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
)

// oldestServer is the oldest version that is supported, as in server_version_num.
const oldestServer = 140000

// withoutTransactionTimeout removes the time limit that PostgreSQL 17 may set for whole transactions. A batch whose
// handler may take longer would fail each time.
const withoutTransactionTimeout = "set local transaction_timeout = 0; "

// requiredSetting is a setting without which the store does not work. If it misreads, a session with another value
// stores other texts than those that it is sent.
type requiredSetting struct {
	name, value, reason string
	misreads            bool
}

// differs is the error about another value.
func (r requiredSetting) differs(value string) error {
	return fmt.Errorf("%s is %q, but must be %q: %s", r.name, value, r.value, r.reason)
}

var requiredSettings = []requiredSetting{
	{name: "default_transaction_read_only", value: "off", reason: "nothing could be appended"},
	{
		name: "default_transaction_isolation", value: "read committed",
		reason: "an append must see what another append that it waited for has written; set it for the role or in the DSN",
	},
	{name: "server_encoding", value: "UTF8", reason: "create the database with encoding 'UTF8'", misreads: true},
	{name: "client_encoding", value: "UTF8", reason: "set it in the DSN", misreads: true},
	{name: "standard_conforming_strings", value: "on", reason: "quoting depends on it", misreads: true},
	{
		name: "session_replication_role", value: "origin",
		reason: "foreign keys and triggers would not work, and a dropped tenant would leave rows behind",
	},
}

// durabilitySettings are on unless the owner of the server accepts that a crash loses committed events, for instance in
// tests.
var durabilitySettings = []string{"fsync", "full_page_writes"}

const dateStyle = "DateStyle"

// serverFacts describes a server and the settings of its sessions.
type serverFacts struct {
	version     int
	versionName string
	inRecovery  bool
	settings    map[string]string
}

// checkServer returns an error if the store would not work with the server or with the settings of the session.
func checkServer(ctx context.Context, pool *pgxpool.Pool, log *zap.Logger) (f serverFacts, err error) {
	names := append(slices.Clone(durabilitySettings), dateStyle)
	for _, required := range requiredSettings {
		names = append(names, required.name)
	}
	err = pool.QueryRow(ctx, queries.Text("server_facts"), pgx.QueryExecModeExec, names).Scan(&f.version,
		&f.versionName, &f.inRecovery, &f.settings)
	if err != nil {
		return f, fmt.Errorf("check the server: %w", err)
	}
	err = errors.Join(f.check(), f.checkTimes(pool.Config().ConnConfig.DefaultQueryExecMode))
	if err != nil {
		return f, err
	}
	if settings := f.lossy(); len(settings) > 0 {
		log.Warn("server settings can lose committed events in a crash", zap.Strings("settings", settings))
	}
	return f, nil
}

// check returns the first reason why the store does not work with the server, or nil.
func (f serverFacts) check() error {
	if f.version < oldestServer {
		return fmt.Errorf("the server is PostgreSQL %s, but 14 or newer is needed", f.versionName)
	}
	if f.inRecovery {
		return fmt.Errorf("the server is a standby in recovery: %w", event.ErrNotPrimary)
	}
	for _, required := range requiredSettings {
		if value := f.settings[required.name]; value != required.value {
			return required.differs(value)
		}
	}
	return nil
}

// checkTimes returns an error if statements are executed in a mode that returns times as text, in a style that the
// driver cannot read.
func (f serverFacts) checkTimes(mode pgx.QueryExecMode) error {
	asText := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
	if style := f.settings[dateStyle]; asText && !strings.HasPrefix(style, "ISO") {
		return fmt.Errorf("%s is %q, but must be \"ISO\" where default_query_exec_mode is %q: set one of them in the DSN", dateStyle, style, mode)
	}
	return nil
}

// checkRows returns an error if row-level security hides rows of the store from the role. Projections whose rows are
// hidden would stand still as if they did not exist, and events whose rows are hidden would be skipped.
func (db *database) checkRows(ctx context.Context) error {
	rows, _ := db.pool.Query(ctx, queries.Text("hidden_rows"), pgx.QueryExecModeExec, db.opts.Schema, storeTables)
	hidden, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return fmt.Errorf("look for row-level security: %w", err)
	case len(hidden) > 0:
		return fmt.Errorf("row-level security hides rows of %s from the role: %s", someOf(hidden), hiddenAdvice)
	}
	return nil
}

// lossy returns the settings with which a crash of the server can lose committed events.
func (f serverFacts) lossy() (settings []string) {
	for _, name := range durabilitySettings {
		if f.settings[name] != "on" {
			settings = append(settings, name+"="+f.settings[name])
		}
	}
	return settings
}

// watchesClients reports whether the server can notice during a statement that its client is gone. Not every platform
// can.
func watchesClients(ctx context.Context, pool *pgxpool.Pool) bool {
	_, err := pool.Exec(ctx, queries.Text("check_client_watch"))
	return err == nil
}
