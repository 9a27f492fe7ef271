package commandline

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// withUnreadable returns a store with the events 1 to 4, of which the server cannot read the second and third.
func withUnreadable(t *testing.T) place {
	t.Helper()
	dsn := pgtest.Database(t)
	p := place{name: "postgres", at: dsn, flags: []string{"--database-url", dsn}}
	p.must(t, done, "migrate", "up")
	for i := range 4 {
		p.must(t, done, "events", "append", fmt.Sprint("s", i/2), "T", fmt.Sprint(i+1))
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	pgtest.MakeUnreadable(t, conn, 2, 3, "54000")
	return p
}

func TestCommandsPassEventsThatCannotBeReadByName(t *testing.T) {
	t.Parallel()
	p := withUnreadable(t)
	const (
		second = `{"unreadable":{"tenant":"default","position":2,"stream":"s0","version":2,"type":"T","time":"<time>","reason":"ERROR: the text is too long (SQLSTATE 54000)"}}`
		third  = `{"unreadable":{"tenant":"default","position":3,"stream":"s1","version":1,"type":"T","time":"<time>","reason":"ERROR: the text is too long (SQLSTATE 54000)"}}`
		first  = `{"tenant":"default","position":1,"stream":"s0","version":1,"type":"T","time":"<time>","body":1}`
		fourth = `{"tenant":"default","position":4,"stream":"s1","version":2,"type":"T","time":"<time>","body":4}`
		reason = "the body cannot be read: ERROR: the text is too long (SQLSTATE 54000)"
		both   = "millrace: 2 events of tenant \"default\" cannot be read, the first at position 2\n"
	)
	masks := masks[1:2]
	for _, c := range []struct {
		args      []string
		status    int
		out, errs []string
	}{
		{[]string{"export"}, failed, []string{first, second, third, fourth}, []string{both}},
		{[]string{"tail", "--json"}, failed, []string{first, second, third, fourth}, []string{both}},
		{
			[]string{"tail", "-n", "2"}, failed, []string{"s1@1  T  " + reason, "s1@2  T  4"},
			[]string{"1 event of", "at position 3"},
		},
		{
			[]string{"stream", "s0"}, failed, []string{"s0@1  T  1", "s0@2  T  " + reason},
			[]string{"1 event of", "at position 2"},
		},
		{[]string{"stream", "s1", "--from", "2"}, done, []string{"s1@2  T  4"}, nil},
		{[]string{"export", "--after", "3"}, done, []string{fourth}, nil},
		{[]string{"count"}, done, []string{"4"}, nil},
		{[]string{"count", "--stream", "s1", "--json"}, done, []string{`"events":2,`}, nil},
	} {
		out, errs, status := p.run(t, append([]string{"events"}, c.args...)...)
		for _, m := range masks {
			out = m.of.ReplaceAllString(out, m.by)
		}
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if status != c.status || len(lines) != len(c.out) || (errs != "") != (c.errs != nil) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, lines, errs)
			continue
		}
		for i, want := range c.out {
			if !strings.HasSuffix(lines[i], want) && !strings.Contains(lines[i], want) {
				t.Errorf("%q: line %d is %s, want %s", c.args, i+1, lines[i], want)
			}
		}
		for _, want := range c.errs {
			if !strings.Contains(errs, want) {
				t.Errorf("%q: %s, want %s", c.args, errs, want)
			}
		}
	}
}

// An export names what it lacks, and so does its import.
func TestExportWithoutEventsThatCannotBeReadSaysSo(t *testing.T) {
	t.Parallel()
	p := withUnreadable(t)
	file := filepath.Join(t.TempDir(), "all.ndjson.gz")
	out := p.must(t, failed, "events", "export", "--output", file)
	for _, want := range []string{"wrote 2 events up to position 4",
		"2 events of tenant \"default\" cannot be read, the first at position 2"} {
		if !strings.Contains(out, want) {
			t.Errorf("printed %q, want %q", out, want)
		}
	}
	p.must(t, done, "tenants", "create", "copy")
	for _, result := range []string{"imported 2 events\n", "imported 0 events; 2 events had been imported before\n"} {
		out := p.must(t, failed, "events", "import", file, "--tenant", "copy")
		for _, want := range []string{result,
			"line 2: event 2 (T of stream \"s0\", version 2) could not be read when the file was written: ERROR: the text",
			"line 3: event 3 ", "millrace: the file lacks 2 events that could not be read when it was written\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("printed %q, want %q", out, want)
			}
		}
	}
	if out := p.must(t, done, "events", "tail", "--tenant", "copy"); strings.Count(out, "\n") != 2 ||
		!strings.Contains(out, "s0@1  T  1") || !strings.Contains(out, "s1@1  T  4") {
		t.Errorf("imported %q", out)
	}
}

// The event of a dead letter cannot be read, for the server cannot print its body, or the file is damaged there.
func TestDeadLetterWhoseEventCannotBeReadIsShown(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.startNode(t)
		p.must(t, done, "events", "append", "order-1", "Poison", "12")
		p.must(t, done, "events", "append", "order-2", "Poison", "12")
		p.await(t, `^2\n$`, "dead-letters", "count", "totals")
		status, reason := done, "body: it cannot be read: ERROR: the text is too long (SQLSTATE 54000)\n"
		if p.name == "postgres" {
			conn, err := pgx.Connect(t.Context(), p.at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			pgtest.MakeUnreadable(t, conn, 1, 1, "54000")
		} else {
			db, err := sql.Open("sqlite", p.at)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("update millrace_events set body = '13' where position = 1"); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			status, reason = failed, "the event at position 1 does not match its checksum"
		}
		out := p.must(t, status, "dead-letters", "show", "totals", "1")
		for _, want := range []string{"dead letter 1 of totals: parked\n",
			"event: position 1, order-1 version 1, type Poison\n", "error: division by zero\n", reason} {
			if !strings.Contains(out, want) {
				t.Errorf("printed %q, want %q", out, want)
			}
		}
		if out := p.must(t, status, "dead-letters", "show", "totals", "1", "--json"); !strings.Contains(out,
			`"error":"division by zero"`) || !strings.Contains(out, `,"unreadable":"`) {
			t.Error(out)
		}
		if out := p.must(t, done, "dead-letters", "show", "totals", "2"); !strings.Contains(out, "body: 12\n") {
			t.Error(out)
		}
		if p.name == "postgres" {
			if out := p.must(t, failed, "dead-letters", "replay", "totals", "1"); !strings.Contains(out,
				"1 event failed again") {
				t.Error(out)
			}
		}
		if out := p.must(t, misused, "dead-letters", "discard", "totals", "1", "7", "--yes"); !strings.Contains(out,
			"dead letter 7 of default/totals: ") {
			t.Error(out)
		}
		if out := p.must(t, done, "dead-letters", "discard", "totals", "1",
			"--yes"); out != "totals: discarded 1 event\n" {
			t.Error(out)
		}
	})
}
