//go:build !linux && !darwin

package sqlitestore

import (
	"path/filepath"
	"strings"
)

// networkFile recognises the network folders of Windows by their names, \\server\share. On other systems it recognises
// none.
func networkFile(folder string) (string, error) {
	if strings.HasPrefix(filepath.VolumeName(folder), `\\`) {
		return "network folder", nil
	}
	return "", nil
}
