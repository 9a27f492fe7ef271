package powerloss

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// File is a file that is written without SQLite. It records what is written.
type File struct {
	*os.File
	disk *Disk
	file int
	name string
}

// OpenFile opens an existing file. Its path must be without symbolic links.
func OpenFile(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	f := &File{file, watching(path), 0, filepath.Base(path)}
	if f.disk != nil {
		f.file = f.disk.opened(f.name)
	}
	return f, nil
}

// ErrFault is the error of an operation that Disk.Fail makes fail.
var ErrFault = errors.New("the operation fails in this test")

// WriteAt is os.File.WriteAt.
func (f *File) WriteAt(data []byte, offset int64) (int, error) {
	if f.disk != nil && f.disk.failure(Write, f.name) != 0 {
		return 0, ErrFault
	}
	n, err := f.File.WriteAt(data, offset)
	if f.disk != nil {
		f.disk.add(record{
			Operation: Operation{Write, f.name}, file: f.file, offset: offset, data: slices.Clone(data[:n]),
		})
	}
	return n, err
}

// Sync is os.File.Sync.
func (f *File) Sync() error {
	if f.disk == nil {
		return f.File.Sync()
	}
	since := f.disk.Len()
	if f.disk.failure(Sync, f.name) != 0 {
		f.disk.add(record{Operation: Operation{Sync, f.name}, file: f.file, since: since, failed: true})
		return ErrFault
	}
	err := f.File.Sync()
	f.disk.add(record{Operation: Operation{Sync, f.name}, file: f.file, since: since, failed: err != nil})
	return err
}
