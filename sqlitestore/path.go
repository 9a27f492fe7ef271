package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// longestChain is how many symbolic links may follow each other. Linux follows as many.
const longestChain = 40

// resolvePath returns the absolute path of a store's file, without symbolic links. SQLite, its log, and the files
// beside the store's file use that path alone, so all names of the file lead to the same files. The file need not
// exist, but its folder must. SQLite would not take some of the refused paths for files.
func resolvePath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("the path must not be empty")
	case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("the path must be that of a file, without a scheme or parameters: %s",
			excerpt.Quoted(path))
	case strings.IndexByte(path, 0) >= 0:
		return "", fmt.Errorf("the path must not contain NUL: %s", excerpt.Quoted(path))
	}
	at := path
	if !filepath.IsAbs(at) {
		folder, err := os.Getwd()
		if err != nil {
			return "", err
		}
		// filepath.Join would remove "link/..", which is not always the folder of the link.
		at = folder + string(filepath.Separator) + at
	}
	for range longestChain {
		found, err := followLinks(at)
		switch {
		case err == nil:
			return found, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("find the file in its folder: %w", err)
		}
		folder, name := filepath.Split(at)
		folder, err = followLinks(folder)
		if err != nil {
			return "", fmt.Errorf("the file's folder: %w", err)
		}
		found = filepath.Join(folder, name)
		target, err := os.Readlink(found)
		if err != nil {
			return found, nil // the file does not exist yet
		}
		at = target
		if !filepath.IsAbs(at) {
			at = folder + string(filepath.Separator) + at
		}
	}
	return "", fmt.Errorf("%s: more than %d symbolic links follow each other", path, longestChain)
}

// followLinks returns the path of an existing file without symbolic links. Links of Linux below /proc may lead to
// another file than the path that they show. Then SQLite would use the wrong file, so this is an error.
func followLinks(path string) (string, error) {
	named, err := os.Stat(path) // first, since another process may create the file meanwhile
	if err != nil {
		return "", err
	}
	misleading := fmt.Errorf("%s is a link to a file that its text does not name: use the path of the file itself", path)
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", misleading
	}
	found, err := os.Stat(target)
	if err != nil || !os.SameFile(named, found) {
		return "", misleading
	}
	return target, nil
}
