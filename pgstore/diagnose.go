package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// DiagnoseOptions configure Diagnose. The zero value means the defaults.
type DiagnoseOptions struct {
	// Patience is how long a transaction, prepared or not, may be open. Default: 5 min.
	Patience time.Duration
}

const (
	defaultPatience = 5 * time.Minute
	// noticeLimit is how long a notification may take.
	noticeLimit = 5 * time.Second
	// clockLimit is how much the clocks of the server and of this machine may differ.
	clockLimit = 5 * time.Second
)

// Diagnose examines a database, its server and the connections to them, and returns what is wrong. dsn and opts are
// those of Open. It also works on a store that Open cannot open, and changes nothing. It reads the catalogs and the
// control schema, and sends one notification to itself. An error means that the examination is incomplete.
func Diagnose(ctx context.Context, dsn string, opts Options, d DiagnoseOptions) ([]projection.Finding, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("diagnose: %w", err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("diagnose: %w", err)
	}
	if d.Patience == 0 {
		d.Patience = defaultPatience
	}
	e := &examination{
		opts: opts, patience: d.Patience, config: config, control: newControlSchema(opts.Schema, opts.KeyRetention),
	}
	if err := e.run(ctx); err != nil {
		return e.found, fmt.Errorf("diagnose: %w", err)
	}
	return e.found, nil
}

// examination is one call of Diagnose.
type examination struct {
	opts     Options
	patience time.Duration
	config   *pgxpool.Config
	control  controlSchema

	conn *pgx.Conn
	// pooled means that a pooler in transaction mode stands between the pool and the server.
	pooled bool
	// version is the server's, as in server_version_num.
	version int
	found   []projection.Finding
}

func (e *examination) add(check, advice, problem string, args ...any) {
	e.found = append(e.found, projection.Finding{Check: check, Problem: fmt.Sprintf(problem, args...), Advice: advice})
}

// dial opens a connection that caches no statements, so that it works behind any pooler.
func (e *examination) dial(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config := e.config.ConnConfig.Copy()
	if dsn != "" {
		var err error
		config, err = pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	primary := config.Copy()
	primaryOnly(primary)
	conn, err := pgx.ConnectConfig(ctx, primary)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	return pgx.ConnectConfig(ctx, config) // a standby is a finding of its own
}

// run runs the checks, each of which needs what the previous ones found in order.
func (e *examination) run(ctx context.Context) (err error) {
	e.conn, err = e.dial(ctx, "")
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.add("connection", "check the address, the role and the network, and whether the server runs",
			"the database cannot be reached: %v", err)
		return nil
	}
	defer func() { _ = e.conn.Close(context.WithoutCancel(ctx)) }()
	for _, check := range []func(context.Context) error{e.server, e.pooler, e.listener, e.hooks, e.rows, e.schemas} {
		if err := check(ctx); err != nil {
			if errors.Is(err, errNothingElse) {
				return nil
			}
			return err
		}
	}
	return nil
}

// errNothingElse ends an examination whose other checks would only find the same fault again.
var errNothingElse = errors.New("the other checks cannot be made")

// server checks the version of the server, its role and its settings.
func (e *examination) server(ctx context.Context) error {
	names := append(slices.Clone(durabilitySettings), "autovacuum", "track_counts")
	for _, required := range requiredSettings {
		names = append(names, required.name)
	}
	var f serverFacts
	err := e.conn.QueryRow(ctx, queries.Text("server_facts"), names).Scan(&f.version, &f.versionName, &f.inRecovery,
		&f.settings)
	if err != nil {
		return fmt.Errorf("read the settings of the server: %w", err)
	}
	e.version = f.version
	if f.version < oldestServer {
		e.add("version", "upgrade the server", "the server is PostgreSQL %s, but 14 or newer is needed", f.versionName)
	}
	for _, required := range requiredSettings {
		// A standby is read-only until it is promoted.
		if value := f.settings[required.name]; value != required.value &&
			!(f.inRecovery && required.name == "default_transaction_read_only") {
			e.add("settings", required.reason, "%s is %q, but must be %q", required.name, value, required.value)
		}
	}
	for _, setting := range f.lossy() {
		e.add("settings", "turn it on, unless the data may be lost",
			"a crash of the server can lose committed events: %s", setting)
	}
	for _, name := range []string{"autovacuum", "track_counts"} {
		if f.settings[name] != "on" {
			e.add("settings", "turn it on: autovacuum cleans up the leases, which change with every batch", "%s is %q",
				name, f.settings[name])
		}
	}
	if f.inRecovery {
		host := e.config.ConnConfig.Host
		e.add("standby",
			"use the address of the primary, or name all hosts in the DSN: Open then connects to the one that takes writes",
			"the server at %s is a standby in recovery", host)
		return errNothingElse
	}
	return nil
}

// pooler checks whether the mode of the pool works with its pooler.
func (e *examination) pooler(ctx context.Context) error {
	pooling, err := session.FindPooling(ctx, e.conn,
		func(ctx context.Context) (*pgx.Conn, error) { return e.dial(ctx, "") })
	if err != nil {
		e.add("pooler", "set pool_mode of the pooler to transaction or session", "%v", err)
		return nil
	}
	e.pooled = pooling.Lends
	return nil
}

// listener sends a notification over the connection, and receives it over the session connection.
func (e *examination) listener(ctx context.Context) error {
	conn, err := e.dial(ctx, e.opts.SessionDSN)
	if err != nil {
		e.add("session connection", "correct Options.SessionDSN (--session-url)",
			"the session connection cannot be opened: %v", err)
		return nil
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var facts serverFacts
	if err := conn.QueryRow(ctx, queries.Text("server_facts"), []string{}).Scan(&facts.version, &facts.versionName,
		&facts.inRecovery, &facts.settings); err != nil {
		return fmt.Errorf("examine the session connection: %w", err)
	}
	if facts.inRecovery {
		e.add("session connection", "let Options.SessionDSN (--session-url) lead to the primary",
			"the session connection leads to a standby")
		return nil
	}
	if e.lends(ctx, conn, e.opts.SessionDSN) {
		e.add("pooler", "set Options.SessionDSN (--session-url) to an address that bypasses the pooler",
			"the session connection goes through a pooler in transaction mode: new events are found by polling, and the death of a node is noticed late")
		return nil
	}
	channel := e.opts.Schema + "_doctor"
	if _, err := conn.Exec(ctx, sqltext.Fill(queries.Text("diagnose_listen"),
		"{channel}", sqltext.Name(channel))); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := e.conn.Exec(ctx, queries.Text("diagnose_notify"), channel); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	if _, err := conn.WaitForNotification(limited); err != nil && ctx.Err() == nil {
		e.add("listener",
			"check that the pool and Options.SessionDSN lead to the same database, and that no pooler drops notifications",
			"a notification did not arrive within %v", noticeLimit)
	}
	return ctx.Err()
}

// lends reports whether a pooler gives each transaction of a connection, which dsn opened, another session.
func (e *examination) lends(ctx context.Context, conn *pgx.Conn, dsn string) bool {
	pooling, err := session.FindPooling(ctx, conn,
		func(ctx context.Context) (*pgx.Conn, error) { return e.dial(ctx, dsn) })
	return err != nil || pooling.Lends
}

// hooks checks that hooks can connect.
func (e *examination) hooks(ctx context.Context) error {
	if e.opts.HookDSN == "" {
		return nil
	}
	conn, err := e.dial(ctx, e.opts.HookDSN)
	if err != nil {
		e.add("hook connection", "correct Options.HookDSN", "hooks cannot connect: %v", err)
		return nil
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if e.lends(ctx, conn, e.opts.HookDSN) {
		e.add("hook connection", "let Options.HookDSN lead to the server itself",
			"hooks connect through a pooler in transaction mode, and are refused")
	}
	return nil
}

// clock compares the server's clock with the time between before and after on this machine.
func (e *examination) clock(server, before, after time.Time) {
	difference := max(server.Sub(after), before.Sub(server))
	if difference > clockLimit {
		e.add("clock", "synchronize both clocks: times in logs and dead letters do not match otherwise",
			"the clocks of the server and of this machine differ by at least %v", difference.Round(time.Second))
	}
}

// stateProblems are the states in which a tenant should not stay.
var stateProblems = map[tenancy.State]string{
	tenancy.Dropping: "call DropTenant (millrace tenants drop) again: an interrupted drop does not continue by itself",
	tenancy.Copying:  "continue or cancel the copy with the version of millrace that began it, or drop the tenant",
}
