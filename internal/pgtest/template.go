package pgtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// template is a folder with data that initdb made. It is a server of this process that never runs, and is removed like the others.
type template struct {
	folder
	bin string
}

// Stop removes the template. The next server makes another one.
func (t *template) Stop(context.Context) error {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	delete(templates.byBin, t.bin)
	owned.remove(t)
	return t.remove()
}

// templates are those of the servers in memory, by the folder of the binaries.
var templates struct {
	mu    sync.Mutex
	byBin map[string]*template
}

// initialize makes the data of a new server. Of servers in memory only the first one of a process runs initdb: the others begin
// with a copy, which takes a tenth of the time. The copies have the same system identifier, which only their standbys read.
func (s *Server) initialize(ctx context.Context) error {
	if !s.inMemory {
		return s.initdb(ctx, s.folder)
	}
	from, err := s.template(ctx)
	if err != nil {
		return err
	}
	return copyFolder(from.data(), s.folder)
}

// template returns the data of the server's binaries, and makes it once.
func (s *Server) template(ctx context.Context) (*template, error) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	if t, ok := templates.byBin[s.bin]; ok {
		return t, nil
	}
	folder, err := newFolder(true)
	if err != nil {
		return nil, err
	}
	if err := s.initdb(ctx, folder); err != nil {
		return nil, errors.Join(err, folder.remove())
	}
	t := &template{folder: folder, bin: s.bin}
	if templates.byBin == nil {
		templates.byBin = make(map[string]*template)
	}
	templates.byBin[s.bin] = t
	owned.add(t)
	return t, nil
}

func (s *Server) initdb(ctx context.Context, into folder) error {
	return s.tool(ctx, "initdb", "--pgdata", into.data(), "--auth", "trust", "--username", "postgres",
		"--no-sync", "--encoding", "UTF8", "--locale", "C")
}

// copyFolder copies what is below from into the data folder of another server.
func copyFolder(from string, to folder) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			return to.mkdir(name)
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return to.write(name, file)
	})
}
