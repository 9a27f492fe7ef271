package sqlitestore

import "syscall"

// mountLocal is MNT_LOCAL of sys/mount.h.
const mountLocal = 0x1000

// networkFile returns the kind of network file system that a folder is on, or an empty string if the file
// system is local.
func networkFile(folder string) (string, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil || stat.Flags&mountLocal != 0 {
		return "", err
	}
	name := make([]byte, 0, len(stat.Fstypename))
	for _, c := range stat.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), nil
}
