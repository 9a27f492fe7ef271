package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/projection"
)

// oldestServer is the oldest version that is supported, as server_version_num has it.
const oldestServer = 140000

// serverFacts is what the store depends on in a server and in the settings of its sessions.
type serverFacts struct {
	version         int
	versionName     string
	inRecovery      bool
	readOnly        string
	isolation       string
	serverEncoding  string
	clientEncoding  string
	standardStrings string
	fsync           string
	fullPageWrites  string
}

// withoutTransactionTimeout takes from a transaction of ours the bound that PostgreSQL 17 may have set for all of it. The batch of a
// handler that may take longer would meet it each time.
const withoutTransactionTimeout = "set local transaction_timeout = 0; "

// checkServer refuses a server, or settings of the session, that the store cannot keep its promises on.
func checkServer(ctx context.Context, pool *pgxpool.Pool, log *zap.Logger) (f serverFacts, err error) {
	err = pool.QueryRow(ctx, queries.Text("server_facts"), pgx.QueryExecModeExec).Scan(&f.version, &f.versionName,
		&f.inRecovery, &f.readOnly, &f.isolation, &f.serverEncoding, &f.clientEncoding, &f.standardStrings, &f.fsync,
		&f.fullPageWrites)
	if err != nil {
		return f, fmt.Errorf("check the server: %w", err)
	}
	if err = f.check(); err != nil {
		return f, err
	}
	if settings := f.lossy(); len(settings) > 0 {
		log.Warn("server settings can lose committed events in a crash", zap.Strings("settings", settings))
	}
	return f, nil
}

// check reports the first reason why the store cannot work there, with the value found; nil means that it can.
func (f serverFacts) check() error {
	switch {
	case f.version < oldestServer:
		return fmt.Errorf("the server is PostgreSQL %s, but 14 or newer is needed", f.versionName)
	case f.inRecovery:
		return fmt.Errorf("the server is a standby in recovery: %w", projection.ErrNotPrimary)
	case f.readOnly != "off":
		return fmt.Errorf("default_transaction_read_only is %q, but must be off: nothing could be appended", f.readOnly)
	case f.isolation != "read committed":
		return fmt.Errorf("default_transaction_isolation is %q, but must be \"read committed\": appends wait for each other"+
			" and must see what the other did; set it for the role or in the DSN", f.isolation)
	case f.serverEncoding != "UTF8":
		return fmt.Errorf("server_encoding is %q, but must be UTF8: create the database with encoding 'UTF8'", f.serverEncoding)
	case f.clientEncoding != "UTF8":
		return fmt.Errorf("client_encoding is %q, but must be UTF8", f.clientEncoding)
	case f.standardStrings != "on":
		return fmt.Errorf("standard_conforming_strings is %q, but must be on: quoting rests on it", f.standardStrings)
	}
	return nil
}

// lossy names the settings under which a crash of the server can lose what was committed. That is the owner's choice,
// and right for tests, so it is only told.
func (f serverFacts) lossy() []string {
	var settings []string
	if f.fsync != "on" {
		settings = append(settings, "fsync="+f.fsync)
	}
	if f.fullPageWrites != "on" {
		settings = append(settings, "full_page_writes="+f.fullPageWrites)
	}
	return settings
}

// watchesClients tells whether the server can notice, while it runs a statement, that its client is gone. Not every
// platform's can.
func watchesClients(ctx context.Context, pool *pgxpool.Pool) bool {
	_, err := pool.Exec(ctx, queries.Text("check_client_watch"))
	return err == nil
}
