package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// frozenAfter is how long a living owner may be without a heartbeat, which is sent every second by default.
	frozenAfter = 10 * time.Second
	// largeLog is the size from which a write-ahead log that is larger than its file is a finding.
	largeLog = 64 << 20
)

// restoreAdvice says what to do about a damaged file. A log that stays behind would damage the backup.
const restoreAdvice = "move the file and all files beside it (-wal, -shm) away, and restore it from a backup"

// Diagnose examines a file and returns what is wrong. It also works on a store that Open cannot open. It reads the
// whole file. To check that writes work, it writes a row of its own, and a temporary file beside the file. An error
// means that the examination is incomplete.
func Diagnose(ctx context.Context, path string, opts Options) ([]projection.Finding, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("diagnose: %w", err)
	}
	e := &examination{}
	s, err := Open(ctx, path, opts)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("diagnose: %w", err)
	case errors.Is(err, ErrNetworkFile):
		e.add("file", "move the file to a local disk: a network file system does not lock it reliably", "%v", err)
	case errors.Is(err, ErrForeignFile):
		e.add("file", "use another file", "%v", err)
	case errors.Is(err, ErrSeveralNames):
		e.add("file", "let all programs open the file by one name, in a folder that is mounted as a whole", "%v", err)
	case errors.Is(err, ErrForeignObject):
		e.add("schema", "drop them with another program, for instance sqlite3", "%v", err)
	case errors.Is(err, ErrReplaced):
		e.add("file",
			"end all processes that have the file open, gracefully; if a backup was restored meanwhile, restore it again", "%v", err)
	case errors.Is(err, ErrCorrupt):
		e.add("file", restoreAdvice, "%v", err)
	case err != nil:
		e.add("permissions", "let the program read and write the file, the files beside it, and its folder", "%v", err)
	}
	if err != nil {
		return e.found, nil
	}
	defer s.Close()
	e.store = s
	if err := e.run(ctx); err != nil {
		return e.found, fmt.Errorf("diagnose: %w", err)
	}
	return e.found, nil
}

// examination is one call of Diagnose.
type examination struct {
	store *Store
	found []projection.Finding
}

func (e *examination) add(check, advice, problem string, args ...any) {
	e.found = append(e.found, projection.Finding{Check: check, Problem: fmt.Sprintf(problem, args...), Advice: advice})
}

func (e *examination) run(ctx context.Context) error {
	faults, err := column[string](ctx, e.store.readers, "quick_check")
	err = damaged(err)
	if errors.Is(err, ErrCorrupt) {
		faults, err = []string{err.Error()}, nil
	}
	if err != nil {
		return fmt.Errorf("check the file: %w", err)
	}
	if !slices.Equal(faults, []string{"ok"}) {
		e.add("file", restoreAdvice, "the file is damaged: %s", strings.Join(faults, "; "))
		return nil
	}
	version, err := schemaVersion(ctx, e.store.readers)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	newest := len(ownMigrations)
	if err := migration.NotTooNew(int(version), newest); err != nil {
		e.add("schema", "use a newer version of this program", "%v", err)
		return nil
	}
	if int(version) < newest {
		e.add("schema", "run millrace migrate up, or call Migrate", "the file is at version %d, this program at %d",
			version, newest)
		return nil
	}
	for _, check := range []func(context.Context) error{e.indexes, e.tenants, e.writes, e.owner} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return e.log()
}

var createdIndex = regexp.MustCompile(`(?m)^create (?:unique )?index (\w+) `)

// indexes checks that the file has all indexes of the migrations.
func (e *examination) indexes(ctx context.Context) error {
	found, err := column[string](ctx, e.store.readers, "own_indexes")
	if err != nil {
		return fmt.Errorf("list the indexes: %w", err)
	}
	var missing []string
	for _, step := range ownMigrations {
		for _, index := range createdIndex.FindAllStringSubmatch(step.SQL, -1) {
			if !slices.Contains(found, index[1]) {
				missing = append(missing, index[1])
			}
		}
	}
	if len(missing) > 0 {
		e.add("indexes", "create them as in sqlitestore/migrations", "indexes are missing: %s",
			strings.Join(missing, ", "))
	}
	return nil
}

// tenants looks for drops that were interrupted.
func (e *examination) tenants(ctx context.Context) error {
	stuck, err := column[string](ctx, e.store.readers, "tenants_in_state", string(tenancy.Dropping))
	if err != nil {
		return fmt.Errorf("read the tenants: %w", err)
	}
	if len(stuck) > 0 {
		e.add("tenants",
			"call DropTenant (millrace tenants drop) again: an interrupted drop does not continue by itself",
			"tenants are in the state %q: %s", tenancy.Dropping, strings.Join(stuck[:min(10, len(stuck))], ", "))
	}
	return nil
}

// writes checks whether the file can be written to, and its disk has room.
func (e *examination) writes(ctx context.Context) error {
	err := e.store.port().Probe(ctx)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, ErrMoved):
		e.add("copy",
			"use the other store; millrace copy cancel, or storecopy.Reopen, of the version that moved the file opens it again", "the file takes no writes: %v", err)
	case err != nil:
		e.add("permissions", "check the permissions of the file and its folder, and the space on the disk",
			"the file cannot be written to: %v", err)
	}
	return nil
}

// owner looks for an owner that is alive and does nothing.
func (e *examination) owner(context.Context) error {
	state, err := ownerlock.Inspect(e.store.path)
	if err != nil {
		e.add("owner", "let the program read the lock file, whose name ends in -owner",
			"the owner of the file cannot be found: %v", err)
		return nil
	}
	if silent := time.Since(state.Beat); state.Held && silent > frozenAfter {
		e.add("owner", "continue or end the process: other processes wait until it ends",
			"the process that owns the file has shown no sign of life for %v", silent.Round(time.Second))
	}
	return nil
}

// log looks for a write-ahead log that grows because a reader does not end.
func (e *examination) log() error {
	file, err := os.Stat(e.store.path)
	if err != nil {
		return fmt.Errorf("examine the file: %w", err)
	}
	if wal, err := os.Stat(e.store.path + "-wal"); err == nil && wal.Size() > max(largeLog, file.Size()) {
		e.add("log", "end reads that last for long: the log cannot shrink while they last",
			"the write-ahead log takes %d MiB, more than the file itself", wal.Size()>>20)
	}
	return nil
}
