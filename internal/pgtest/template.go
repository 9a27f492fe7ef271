package pgtest

import (
	"context"
	"errors"
	"sync"
)

// template is a folder with the data of a new server, made by initdb.
type template struct {
	folder
	bin string
}

// Stop removes the template. The next server makes another one.
func (t *template) Stop(context.Context) error {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	delete(templates.byBin, t.bin)
	owned.Delete(t)
	return t.remove()
}

// templates are the templates of servers in memory, by the folder of the binaries.
var templates struct {
	mu    sync.Mutex
	byBin map[string]*template
}

// initialize makes the data of a new server. For servers in memory it runs initdb once and copies the result, which
// takes a tenth of the time. The copies have the same system identifier, which only their standbys read.
func (s *Server) initialize(ctx context.Context) error {
	if !s.inMemory {
		return s.initdb(ctx, s.folder)
	}
	from, err := s.template(ctx)
	if err != nil {
		return err
	}
	return copyTree(ctx, from.data(), s.folder, nil)
}

// template returns the template for the server's binaries, and makes it once.
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
	owned.Store(t, nil)
	return t, nil
}

func (s *Server) initdb(ctx context.Context, into folder) error {
	return s.tool(ctx, "initdb", "--pgdata", into.data(), "--auth", "trust", "--username", "postgres",
		"--no-sync", "--encoding", "UTF8", "--locale", "C")
}
