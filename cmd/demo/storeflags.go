package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// storeFlags select the store. At most one of them is set after resolve.
type storeFlags struct {
	file, databaseURL string
	postgres          bool
}

// add adds the flags of all commands.
func (s *storeFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.file, "file", "", "SQLite file to use")
	f.StringVar(&s.databaseURL, "database-url", "", "PostgreSQL database to use (default $DATABASE_URL)")
}

// resolve reads DATABASE_URL if no flag selects a store, and refuses contradictions.
func (s *storeFlags) resolve(cmd *cobra.Command) error {
	switch {
	case s.file != "" && s.databaseURL != "":
		return errors.New("-file and -database-url exclude each other")
	case s.postgres && s.file != "":
		return errors.New("-postgres and -file exclude each other")
	case s.postgres && s.databaseURL != "":
		return errors.New("-postgres and -database-url exclude each other: -postgres starts a server")
	case cmd.Flags().Changed("file") && s.file == "":
		return errors.New("-file must not be empty")
	case s.file == "" && !s.postgres:
		s.databaseURL = program.DatabaseURL(cmd, s.databaseURL)
	}
	return nil
}

// place returns the place that several commands use.
func (s *storeFlags) place(cmd *cobra.Command) (place, error) {
	if err := s.resolve(cmd); err != nil {
		return nil, err
	}
	switch {
	case s.file != "":
		return filePlace{path: s.file}, nil
	case s.databaseURL != "":
		return postgresPlace{url: s.databaseURL}, nil
	}
	return nil,
		errors.New("none of -file, -database-url and DATABASE_URL is set; demo serve starts a PostgreSQL server")
}

// place returns the place of a run, which may be temporary. stop removes a temporary place.
func (o options) place(ctx context.Context) (_ place, stop func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case o.store.file != "":
		return filePlace{path: o.store.file}, nothing, nil
	case o.store.databaseURL != "":
		return postgresPlace{url: o.store.databaseURL}, nothing, nil
	case o.store.postgres:
		server, err := program.PrivateServer(ctx, o.writers, nil)
		if errors.Is(err, pgtest.ErrNotFound) {
			err = fmt.Errorf("-postgres: %w; without -postgres the demo needs no server", err)
		}
		if err != nil {
			return nil, nil, err
		}
		return postgresPlace{url: server.DSN("postgres"), private: true},
			func() error { return program.Cleanup(ctx, server.Stop) }, nil
	}
	folder, remove, err := program.TemporaryFolder("millrace-demo-")
	if err != nil {
		return nil, nil, err
	}
	return filePlace{path: filepath.Join(folder, "demo.db"), temporary: true}, remove, nil
}
