package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// childMounts opens a file that is mounted alone, and by a mount of its folder. It has mounts of its own.
func childMounts(path string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	folder := filepath.Join(filepath.Dir(path), "mounted")
	alone := filepath.Join(filepath.Dir(path), "alone.db")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(alone, nil, 0o600)); err != nil {
		return err
	}
	from := filepath.Join(filepath.Dir(path), "data")
	if err := errors.Join(syscall.Mount(from, folder, "", syscall.MS_BIND, ""),
		syscall.Mount(filepath.Join(from, "store.db"), alone, "", syscall.MS_BIND, "")); err != nil {
		return err
	}
	for _, name := range []string{filepath.Join(folder, "store.db"), alone} {
		store, err := Open(context.Background(), name, Options{})
		if err == nil {
			store.Close()
		}
		fmt.Println(errors.Is(err, ErrSeveralNames), err)
	}
	return nil
}

func TestFileThatIsMountedAloneIsRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	data := filepath.Join(filepath.Dir(path), "data")
	noError(t, os.Mkdir(data, 0o700))
	filled(t, filepath.Join(data, "store.db"))
	cmd := child(testContext(t), "mount", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exited *exec.ExitError
	if errors.Is(err, syscall.EPERM) || errors.As(err, &exited) &&
		strings.Contains(said.String(), syscall.EPERM.Error()) {
		t.Skip("this user must not mount files")
	}
	folder, alone, _ := strings.Cut(string(out), "\n")
	if err != nil || folder != "false <nil>" || !strings.HasPrefix(alone, "true ") ||
		!strings.Contains(alone, "mount its folder") {
		t.Errorf("by the folder %q, alone %q, %v: %s", folder, alone, err, said.String())
	}
}
