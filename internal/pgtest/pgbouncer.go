package pgtest

import (
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
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoPgBouncer is returned when PgBouncer is not installed.
var ErrNoPgBouncer = errors.New("needs pgbouncer: apt-get install pgbouncer")

// errOldPgBouncer says that the installed PgBouncer cannot do what a test is about.
var errOldPgBouncer = errors.New("needs pgbouncer 1.21 or newer, which follows prepared statements")

// PgBouncerOptions configure a PgBouncer.
type PgBouncerOptions struct {
	// Mode is the pool_mode: "session", "transaction" or "statement". Default "transaction".
	Mode string
	// PoolSize is how many connections to the server it has for one user and database. Default 20.
	PoolSize int
	// FollowStatements makes it follow the prepared statements of its clients, which PgBouncer can from 1.21 on.
	FollowStatements bool
	// Settings are written to the section [pgbouncer] of its configuration and win over the defaults.
	Settings map[string]string
}

// PgBouncer is a private pooler in front of one server. All methods may be called at any time and from any goroutine.
type PgBouncer struct {
	folder
	bin     string
	follows bool // it can follow prepared statements
	server  *pgx.ConnConfig
	port    int

	mu      sync.Mutex // held while it is started or ended
	run     *process
	stopped bool
}

// Pooler starts a PgBouncer for the server of dsn and stops it at the end of the test. Where PgBouncer is not installed,
// the test is skipped.
func Pooler(tb TB, dsn string, options PgBouncerOptions) *PgBouncer {
	tb.Helper()
	b, err := StartPgBouncer(context.Background(), dsn, options)
	if errors.Is(err, ErrNoPgBouncer) || errors.Is(err, errOldPgBouncer) {
		tb.Skipf("%v", err)
	}
	if err != nil {
		tb.Fatalf("start a private PgBouncer: %v", err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := b.Stop(context.Background()); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	return b
}

// StartPgBouncer makes a new PgBouncer for the server of dsn and returns when it accepts connections. The caller owns it
// and must call Stop.
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
		return nil, errors.New("start PgBouncer: the connection string of its server is not valid") // the reason would repeat the password
	}
	folder, err := newFolder(false)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{folder: folder, bin: bin, follows: follows, server: server}
	owned.add(b)
	if err := b.launchFirst(ctx, options); err != nil {
		return nil, errors.Join(err, b.Stop(ctx))
	}
	return b, nil
}

// findPgBouncer returns the installed PgBouncer. Packages put it where only root's PATH leads.
func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoPgBouncer
}

// followsStatements reports whether a PgBouncer can follow prepared statements: from 1.21 on.
func followsStatements(ctx context.Context, bin string) (bool, error) {
	said, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("ask PgBouncer for its version: %w", err)
	}
	first, _, _ := strings.Cut(string(said), "\n")
	return slices.Compare(version(first), []int{1, 21}) >= 0, nil
}

// Address returns where the pooler listens, as host:port.
func (b *PgBouncer) Address() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// DSN returns how to connect to a database of the server through the pooler, as a URL.
func (b *PgBouncer) DSN(database string) string {
	user := url.User(b.server.User)
	if b.server.Password != "" {
		user = url.UserPassword(b.server.User, b.server.Password)
	}
	return withSettings(&url.URL{Scheme: "postgres", User: user, Host: b.Address(), Path: "/" + database},
		url.Values{"sslmode": {"disable"}})
}

// Restart ends the pooler as a crash does and starts it again at the same address. All connections through it are lost.
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

// Stop ends the pooler and removes its folder. It returns when nothing is left; called again it does nothing.
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
	owned.remove(b)
	return errors.Join(err, b.remove())
}

// launchFirst writes the configuration and starts the pooler on a free port; one that turns out to be taken is replaced.
func (b *PgBouncer) launchFirst(ctx context.Context, options PgBouncerOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for attempt := 1; ; attempt++ {
		b.port = freePort()
		if err := b.configure(options); err != nil {
			return fmt.Errorf("configure PgBouncer: %w", err)
		}
		err := b.launch(ctx)
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
	}
}

func (b *PgBouncer) configure(options PgBouncerOptions) error {
	settings := map[string]string{
		"listen_addr":       "127.0.0.1",
		"listen_port":       strconv.Itoa(b.port),
		"unix_socket_dir":   "",
		"auth_type":         "trust",
		"auth_file":         b.users(),
		"pool_mode":         "transaction",
		"default_pool_size": "20",
		"max_client_conn":   "500",
		// A server that was away is tried again soon; the default is 15 s.
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
	var text strings.Builder
	fmt.Fprintf(&text, "[databases]\n* = host=%s port=%d\n[pgbouncer]\n", b.server.Host, b.server.Port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = %s\n", name, settings[name])
	}
	double := strings.NewReplacer(`"`, `""`)
	users := fmt.Sprintf("\"%s\" \"%s\"\n", double.Replace(b.server.User), double.Replace(b.server.Password))
	return errors.Join(b.write(b.ini(), text.String()), b.write(b.users(), users))
}

func (b *PgBouncer) ini() string   { return filepath.Join(b.data(), "pgbouncer.ini") }
func (b *PgBouncer) users() string { return filepath.Join(b.data(), "users.txt") }

// write writes a file that only the pooler's user can read.
func (b *PgBouncer) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || b.owner == nil {
		return err
	}
	return os.Chown(path, int(b.owner.Uid), int(b.owner.Gid))
}

// launch starts the pooler and returns when it accepts connections.
func (b *PgBouncer) launch(ctx context.Context) error {
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open PgBouncer's log: %w", err)
	}
	defer log.Close()
	cmd := b.dress(exec.Command(b.bin, b.ini()))
	cmd.Stdout, cmd.Stderr = log, log
	if b.run, err = spawn(cmd); err != nil {
		return err
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		conn, err := net.Dial("tcp4", "127.0.0.1:"+strconv.Itoa(b.port))
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case <-b.run.exited:
			said := b.Log()
			if strings.Contains(said, "already in use") {
				return fmt.Errorf("start PgBouncer on port %d: %w", b.port, errPortTaken)
			}
			return fmt.Errorf("start PgBouncer in %s: it ended at once: %s", b.path, said)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("start PgBouncer in %s: %w: %s", b.path, context.Cause(ctx), b.Log()), b.run.kill(b.path))
		case <-ticker.C:
		}
	}
}

// Log returns the end of the pooler's log.
func (b *PgBouncer) Log() string { return tail(b.log(), 0, 8<<10) }
