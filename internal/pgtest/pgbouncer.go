package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// ErrNoPgBouncer is returned when PgBouncer is not installed.
var ErrNoPgBouncer = errors.New("needs pgbouncer: apt-get install pgbouncer")

// errOldPgBouncer is returned when the installed PgBouncer lacks a feature that the options require.
var errOldPgBouncer = errors.New("needs pgbouncer 1.21 or newer, which tracks prepared statements")

const iniFile, usersFile = "pgbouncer.ini", "users.txt"

// PgBouncerOptions configure a PgBouncer.
type PgBouncerOptions struct {
	// Mode is the pool_mode: "session", "transaction" or "statement". Default "transaction".
	Mode string
	// PoolSize is how many connections to the server it has for one user and database. Default 20.
	PoolSize int
	// FollowStatements makes it track the prepared statements of its clients. It needs PgBouncer 1.21.
	FollowStatements bool
	// Settings are written to the section [pgbouncer] of its configuration and win over the defaults.
	Settings map[string]string
}

// PgBouncer is a private pooler in front of one server. All methods may be called at any time and from any goroutine.
type PgBouncer struct {
	folder
	bin     string
	follows bool // it can track prepared statements
	server  *pgx.ConnConfig
	port    int

	mu      sync.Mutex // held while it is started or stopped
	run     *process
	stopped bool
}

// Pooler starts a PgBouncer for the server of dsn and stops it at the end of the test. If PgBouncer is not installed,
// it skips the test.
func Pooler(tb TB, dsn string, options PgBouncerOptions) *PgBouncer {
	tb.Helper()
	b, err := StartPgBouncer(context.Background(), dsn, options)
	if errors.Is(err, ErrNoPgBouncer) || errors.Is(err, errOldPgBouncer) {
		tb.Skipf("%v", err)
	}
	if err != nil {
		tb.Fatalf("start a private PgBouncer: %v", err)
	}
	stopAtEnd(tb, b)
	return b
}

// StartPgBouncer starts a PgBouncer for the server of dsn and returns when it accepts connections. The caller must call
// Stop.
func StartPgBouncer(ctx context.Context, dsn string, options PgBouncerOptions) (*PgBouncer, error) {
	bin, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	follows, err := followsStatements(ctx, bin)
	if err != nil {
		return nil, err
	}
	if options.FollowStatements && !follows {
		return nil, errOldPgBouncer
	}
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		// the reason would repeat the password
		return nil, errors.New("start PgBouncer: the connection string of its server is not valid")
	}
	folder, err := newFolder(false)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{folder: folder, bin: bin, follows: follows, server: server}
	owned.Store(b, nil)
	if err := b.launchFirst(ctx, options); err != nil {
		return nil, errors.Join(err, b.Stop(ctx))
	}
	return b, nil
}

// findPgBouncer returns the installed PgBouncer, which is often only in root's PATH.
func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer",
		"/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoPgBouncer
}

// followsStatements reports whether a PgBouncer can track prepared statements.
func followsStatements(ctx context.Context, bin string) (bool, error) {
	said, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("run PgBouncer --version: %w", err)
	}
	first, _, _ := strings.Cut(string(said), "\n")
	return slices.Compare(version(first), []int{1, 21}) >= 0, nil
}

// Address returns where the pooler listens, as host:port.
func (b *PgBouncer) Address() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// DSN returns the URL of a database of the server, through the pooler.
func (b *PgBouncer) DSN(database string) string {
	user := url.User(b.server.User)
	if b.server.Password != "" {
		user = url.UserPassword(b.server.User, b.server.Password)
	}
	return withSettings(&url.URL{Scheme: "postgres", User: user, Host: b.Address(), Path: "/" + database},
		url.Values{"sslmode": {"disable"}})
}

// Restart kills the pooler and starts it again at the same address. All connections through it are lost.
func (b *PgBouncer) Restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return errors.New("restart PgBouncer: it was stopped")
	}
	if err := b.run.kill(b.path); err != nil {
		return fmt.Errorf("restart PgBouncer: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return b.launch(ctx)
}

// Stop stops the pooler and removes its folder. Further calls do nothing.
func (b *PgBouncer) Stop(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	var err error
	if b.run != nil && !b.run.end(syscall.SIGTERM, stopLimit, nil) {
		err = b.run.kill(b.path)
	}
	b.stopped = true
	owned.Delete(b)
	return errors.Join(err, b.remove())
}

// launchFirst writes the configuration and starts the pooler on a free port.
func (b *PgBouncer) launchFirst(ctx context.Context, options PgBouncerOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return onFreePort(func(port int) error {
		b.port = port
		if err := b.configure(options); err != nil {
			return fmt.Errorf("configure PgBouncer: %w", err)
		}
		return b.launch(ctx)
	})
}

func (b *PgBouncer) configure(options PgBouncerOptions) error {
	settings := map[string]string{
		"listen_addr":       "127.0.0.1",
		"listen_port":       strconv.Itoa(b.port),
		"unix_socket_dir":   "",
		"auth_type":         "trust",
		"auth_file":         filepath.Join(b.data(), usersFile),
		"pool_mode":         "transaction",
		"default_pool_size": "20",
		"max_client_conn":   "500",
		// A server that was down is tried again soon; the default is 15 s.
		"server_login_retry": "0.1",
	}
	if options.Mode != "" {
		settings["pool_mode"] = options.Mode
	}
	if options.PoolSize != 0 {
		settings["default_pool_size"] = strconv.Itoa(options.PoolSize)
	}
	if b.follows {
		settings["max_prepared_statements"] = "0"
	}
	if options.FollowStatements {
		settings["max_prepared_statements"] = "200"
	}
	maps.Copy(settings, options.Settings)
	var text bytes.Buffer
	fmt.Fprintf(&text, "[databases]\n* = host=%s port=%d\n[pgbouncer]\n", b.server.Host, b.server.Port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = %s\n", name, settings[name])
	}
	double := strings.NewReplacer(`"`, `""`)
	users := fmt.Sprintf("\"%s\" \"%s\"\n", double.Replace(b.server.User), double.Replace(b.server.Password))
	return errors.Join(b.write(iniFile, &text), b.write(usersFile, strings.NewReader(users)))
}

// launch starts the pooler and returns when it accepts connections.
func (b *PgBouncer) launch(ctx context.Context) error {
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open PgBouncer's log: %w", err)
	}
	defer log.Close()
	cmd := b.dress(exec.Command(b.bin, filepath.Join(b.data(), iniFile)))
	cmd.Stdout, cmd.Stderr = log, log
	b.run, err = spawn(cmd)
	if err != nil {
		return err
	}
	err = poll(ctx, func() (bool, error) {
		conn, err := net.Dial("tcp4", b.Address())
		if err == nil {
			conn.Close()
			return true, nil
		}
		if b.run.running() {
			return false, nil
		}
		if strings.Contains(b.Log(), "already in use") {
			return false, errPortTaken
		}
		return false, errExited
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start PgBouncer in %s on port %d: %w: %s", b.path, b.port, err, b.Log()),
			b.run.kill(b.path))
	}
	return nil
}

// Log returns the end of the pooler's log.
func (b *PgBouncer) Log() string { return tail(b.log(), 0, 8<<10) }
