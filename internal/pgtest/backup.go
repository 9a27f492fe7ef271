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

// notCopied are the folders whose content belongs to one life of one server. The standby needs them, empty.
var notCopied = []string{
	"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
}

// leftOut are the files that belong to one life of one server, or to an earlier backup.
var leftOut = []string{
	"postmaster.pid", "postmaster.opts", "backup_label", "backup_label.old", "tablespace_map", "tablespace_map.old",
	"backup_manifest", "standby.signal", "recovery.signal",
}

// backup fills another server's data folder with a copy of this one's, from which a standby starts.
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
		if err := copyData(ctx, s.data(), to); err != nil {
			return fmt.Errorf("copy the data folder: %w", err)
		}
		var label, tablespaces string
		if err := conn.QueryRow(ctx, end).Scan(&label, &tablespaces); err != nil {
			return fmt.Errorf("end a backup: %w", err)
		}
		if strings.TrimSpace(tablespaces) != "" {
			return fmt.Errorf("the server has tablespaces, which a copy would share with it: %s", strings.TrimSpace(tablespaces))
		}
		return errors.Join(to.write("backup_label", strings.NewReader(label)), to.write("standby.signal", strings.NewReader("")))
	})
}

// copyData copies a data folder while its server runs. Files come, go and change meanwhile: replaying what was written
// since the backup began sets that right.
func copyData(ctx context.Context, from string, to folder) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return ignoreGone(err)
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case name == ".":
			return nil
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "pgsql_tmp"):
			return fs.SkipDir
		case entry.IsDir():
			if err := to.mkdir(name); err != nil {
				return err
			}
			if slices.Contains(notCopied, name) {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular(), slices.Contains(leftOut, name), strings.HasPrefix(entry.Name(), "pg_internal.init"):
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return ignoreGone(err)
		}
		defer file.Close()
		return to.write(name, file)
	})
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// write makes a file in the data folder, for the server's user.
func (f folder) write(name string, content io.Reader) error {
	file, err := os.OpenFile(filepath.Join(f.data(), name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
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
