// Package powerloss shows what a power loss can do to the files of SQLite. It records the operations on the files of a
// folder, builds the files as a disk may have them after any of these operations, and makes single operations fail. It
// is for tests, and works on Linux.
package powerloss

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Kind is the kind of an operation on a file.
type Kind int

// The kinds of operations. Create and Delete change the folder; SyncFolder makes these changes durable.
const (
	Create Kind = iota
	Delete
	SyncFolder
	Write
	Truncate
	Sync
	Read
)

func (k Kind) String() string {
	return [...]string{"create", "delete", "sync folder", "write", "truncate", "sync", "read"}[k]
}

// Operation is an operation that SQLite is about to do.
type Operation struct {
	Kind Kind
	// Name is the name of the file in its folder.
	Name string
}

// record is an operation that was done, or a sync that failed.
type record struct {
	Operation
	// file is the index of the file in Disk.files. A file that is deleted and created again is another file.
	file   int
	offset int64 // of Write; the new size of Truncate
	data   []byte
	// since is the number of records when a sync began. The sync makes earlier ones durable.
	since  int
	failed bool
}

// Disk records the operations on the files of a folder.
type Disk struct {
	folder string

	mu      sync.Mutex
	records []record
	// files are the contents that the files had when recording began.
	files [][]byte
	// first and names are the files by name, when recording began and now.
	first, names map[string]int
	fault        func(Operation) int
	// synced are the names of files whose folder was opened by a sync that has not ended.
	synced map[string]bool
}

// Watch records what SQLite does to the files of a folder, until the returned function is called. The files that are
// there count as synced. The folder's path must be absolute and without symbolic links.
func Watch(folder string) (*Disk, func(), error) {
	d := &Disk{folder: folder, first: make(map[string]int), names: make(map[string]int), synced: make(map[string]bool)}
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		content, failed := os.ReadFile(filepath.Join(folder, entry.Name()))
		err = errors.Join(err, failed)
		d.first[entry.Name()], d.names[entry.Name()] = len(d.files), len(d.files)
		d.files = append(d.files, content)
	}
	if err != nil {
		return nil, nil, err
	}
	watched.Store(folder, d)
	return d, func() { watched.Delete(folder) }, nil
}

// watched are the disks by their folders.
var watched sync.Map

// watching returns the disk of a file's folder, or nil.
func watching(path string) *Disk {
	d, ok := watched.Load(filepath.Dir(path))
	if !ok || path == "" || strings.HasSuffix(path, "-shm") {
		return nil
	}
	return d.(*Disk)
}

// Len returns the number of recorded operations.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.records)
}

// At returns a recorded operation.
func (d *Disk) At(i int) Operation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[i].Operation
}

// Fail sets a function that is called before each operation. Unless it returns 0, the operation fails with that result
// code of SQLite. A write that fails writes its first half, and a sync that fails leaves unknown what is durable.
func (d *Disk) Fail(fault func(Operation) int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// failure returns the result code with which an operation must fail, or 0.
func (d *Disk) failure(kind Kind, name string) int {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault == nil {
		return 0
	}
	return fault(Operation{kind, name})
}

// opened returns the file of a name, and records its creation if it is new.
func (d *Disk) opened(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	file, ok := d.names[name]
	if !ok {
		file = len(d.files)
		d.files = append(d.files, nil)
		d.names[name] = file
		d.records = append(d.records, record{Operation: Operation{Create, name}, file: file})
	}
	return file
}

func (d *Disk) deleted(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, name)
	d.records = append(d.records, record{Operation: Operation{Delete, name}})
}

func (d *Disk) add(r record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = append(d.records, r)
}

// folderOpened notes that the folder of a file is being synced.
func (d *Disk) folderOpened(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced[name] = true
}

// folderSynced records a sync of the folder, if the operation on the file that has just ended did one.
func (d *Disk) folderSynced(name string, since int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.synced[name] {
		delete(d.synced, name)
		d.records = append(d.records, record{Operation: Operation{SyncFolder, name}, since: since})
	}
}
