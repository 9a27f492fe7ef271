package sqlitestore

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
)

// logIndex is the index of a file's log that this process uses. SQLite has one for all connections of the process to
// the file, also after another process has made a new one.
type logIndex struct {
	file fs.FileInfo
	// conns counts the connections. Those that are kept open for ever stay counted.
	conns int
	// index is nil until a connection has opened it.
	index fs.FileInfo
}

var (
	// indexesMu is held while connections are opened and closed, since SQLite opens the index with the first one and
	// removes it with the last one.
	indexesMu sync.Mutex
	indexes   []*logIndex
)

// findIndex returns the index of a file, nil if no connection has it. indexesMu is held.
func findIndex(file fs.FileInfo) *logIndex {
	at := slices.IndexFunc(indexes, func(i *logIndex) bool { return os.SameFile(i.file, file) })
	if at < 0 {
		return nil
	}
	return indexes[at]
}

// enterIndex counts a connection that was opened. indexesMu is held.
func enterIndex(at *location) (*logIndex, error) {
	file := at.file
	if file == nil { // it is not known yet which file SQLite has opened
		found, err := os.Stat(at.path)
		if err != nil {
			return nil, err
		}
		file = found
	}
	i := findIndex(file)
	if i == nil {
		i = &logIndex{file: file}
		indexes = append(indexes, i)
	}
	i.conns++
	return i, nil
}

// leaveIndex undoes enterIndex. indexesMu is held.
func leaveIndex(i *logIndex) {
	i.conns--
	if i.conns == 0 {
		indexes = slices.DeleteFunc(indexes, func(other *logIndex) bool { return other == i })
	}
}

// log returns the files of the log that a connection which was just opened uses.
func (i *logIndex) log(at *location) logFiles {
	log := at.log()
	if i.index == nil {
		i.index = log[indexFile]
	}
	log[indexFile] = i.index
	return log
}

// replaced reports whether another process has made a new index, after the one of this process was removed.
func (i *logIndex) replaced(path string) bool {
	now, err := os.Stat(path + logSuffixes[indexFile])
	return err == nil && i.index != nil && !os.SameFile(i.index, now)
}

// checkIndex returns ErrReplaced if this process still uses an index that another process has replaced.
func checkIndex(path string) error {
	indexesMu.Lock()
	defer indexesMu.Unlock()
	file, err := os.Stat(path)
	if err != nil {
		return nil // there is no file, or opening it says why not
	}
	if i := findIndex(file); i != nil && i.replaced(path) {
		return fmt.Errorf("%s%s: %w; end this process first", path, logSuffixes[indexFile], ErrReplaced)
	}
	return nil
}
