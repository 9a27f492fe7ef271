package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// onEachStore runs a test on a new file, and on a new database.
func onEachStore(t *testing.T, test func(t *testing.T, o options)) {
	t.Run("file", func(t *testing.T) { test(t, options{file: t.TempDir() + "/shop.db"}) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, options{databaseURL: pgtest.Database(t)}) })
}

// open makes a shop whose runtime runs until the test ends.
func open(t *testing.T, o options) *shop {
	t.Helper()
	s, err := newShop(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.runtime.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.close()
	})
	return s
}

func TestProgramServesMetricsUntilItIsInterrupted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o options) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		said, out := io.Pipe()
		args := []string{"-listen", "127.0.0.1:0", "-every", "1ms", "-database-url", o.databaseURL}
		ended := make(chan error, 1)
		go func() { ended <- errors.Join(run(ctx, args, out), out.Close()) }()
		var url string
		if _, err := fmt.Fscanf(said, "metrics are on %s\n", &url); err != nil {
			t.Fatal(errors.Join(err, <-ended))
		}
		applied := regexp.MustCompile(`(?m)^millrace_event_applied_total\{millrace_projection_name="mails"\} \d{2,}$`)
		for !applied.MatchString(get(t, url)) {
			if t.Context().Err() != nil || len(ended) > 0 {
				t.Fatal("no mails were sent", <-ended)
			}
		}
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-unknown"}, {"-every", "soon"}, {"-every", "0s"},
		{"-file", "a", "-database-url", "b"}, {"-database-url", "postgres://127.0.0.1:1/none"},
		{"-listen", "nowhere"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
