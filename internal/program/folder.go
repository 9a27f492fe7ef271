package program

import (
	"fmt"
	"os"
	"sync"

	"github.com/millrace-go/millrace/internal/console"
)

// temporary are the temporary folders of this process.
var temporary sync.Map

// TemporaryFolder creates a folder whose name begins with prefix. remove removes it, as does a force stop.
func TemporaryFolder(prefix string) (path string, remove func() error, err error) {
	path, err = os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	temporary.Store(path, true)
	return path, func() error {
		defer temporary.Delete(path)
		if err := os.RemoveAll(path); err != nil {
			return &CleanupError{fmt.Errorf("remove the temporary folder: %w", err)}
		}
		return nil
	}, nil
}

// removeFolders removes all temporary folders.
func removeFolders() {
	temporary.Range(func(path, _ any) bool {
		if err := os.RemoveAll(path.(string)); err != nil {
			fmt.Fprintln(os.Stderr, console.OneLine(err.Error()))
		}
		return true
	})
}
