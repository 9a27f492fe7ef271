package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// emptyFolders are the folders that a standby needs empty.
var emptyFolders = []string{
	"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
}

// leftOut are files that a standby must not have.
var leftOut = []string{
	"postmaster.pid", "postmaster.opts", "backup_label", "backup_label.old", "tablespace_map", "tablespace_map.old",
	"backup_manifest", "standby.signal", "recovery.signal",
}

// backup copies this server's data to the folder of a standby.
func (s *Server) backup(ctx context.Context, to folder) error {
	return connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		begin, end := "select pg_backup_start('pgtest', fast => true)",
			"select labelfile, spcmapfile from pg_backup_stop(wait_for_archive => false)"
		version := 0
		if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
			return err
		}
		if version < 150000 {
			begin = "select pg_start_backup('pgtest', true, false)"
			end = "select labelfile, spcmapfile from pg_stop_backup(false, false)"
		}
		if _, err := conn.Exec(ctx, begin); err != nil {
			return fmt.Errorf("begin a backup: %w", err)
		}
		if err := copyTree(ctx, s.data(), to, ofOneLife); err != nil {
			return fmt.Errorf("copy the data folder: %w", err)
		}
		var label, tablespaces string
		if err := conn.QueryRow(ctx, end).Scan(&label, &tablespaces); err != nil {
			return fmt.Errorf("end a backup: %w", err)
		}
		if strings.TrimSpace(tablespaces) != "" {
			return fmt.Errorf("the server has tablespaces, which a copy would share with it: %s",
				strings.TrimSpace(tablespaces))
		}
		return errors.Join(to.write("backup_label", strings.NewReader(label)),
			to.write("standby.signal", strings.NewReader("")))
	})
}

// copyTree copies the content of a data folder into that of another server. If leave is not nil, it reports which
// files, and which contents of folders, to leave out, and from belongs to a running server. Then files may vanish and
// change during the copy; the replay of the WAL since the start of the backup repairs that.
func copyTree(ctx context.Context, from string, to folder, leave func(name string, entry fs.DirEntry) bool) error {
	unlessGone := func(err error) error {
		if leave != nil && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		err = errors.Join(err, context.Cause(ctx))
		if err != nil {
			return unlessGone(err)
		}
		name, err := filepath.Rel(from, path)
		if err != nil || name == "." {
			return err
		}
		left := leave != nil && leave(name, entry)
		if entry.IsDir() {
			if err := to.mkdir(name); err != nil || !left {
				return err
			}
			return fs.SkipDir
		}
		if left {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return unlessGone(err)
		}
		defer file.Close()
		return to.write(name, file)
	})
}

// ofOneLife reports whether a file, or the content of a folder, belongs to one life of one server, or to an earlier
// backup.
func ofOneLife(name string, entry fs.DirEntry) bool {
	if entry.IsDir() {
		return slices.Contains(emptyFolders, name) || strings.HasPrefix(entry.Name(), "pgsql_tmp")
	}
	return !entry.Type().IsRegular() || slices.Contains(leftOut, name) ||
		strings.HasPrefix(entry.Name(), "pg_internal.init")
}

// write writes a file in the data folder, for the server's user.
func (f folder) write(name string, content io.Reader) error {
	file, err := os.OpenFile(filepath.Join(f.data(), name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if f.owner != nil {
		err = errors.Join(err, file.Chown(int(f.owner.Uid), int(f.owner.Gid)))
	}
	return errors.Join(err, file.Close())
}

// mkdir makes a folder in the data folder, for the server's user.
func (f folder) mkdir(name string) error {
	path := filepath.Join(f.data(), name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if f.owner != nil {
		return os.Chown(path, int(f.owner.Uid), int(f.owner.Gid))
	}
	return nil
}
