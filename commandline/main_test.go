package commandline

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/tests/kit"
)

const (
	// asCommand makes the test binary the command.
	asCommand = "MILLRACE_TEST_COMMAND"
	// patient is a limit that only a hang exceeds.
	patient = 5 * time.Minute
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asCommand) != "":
		os.Exit(Main(os.Args[1:], Options{}))
	case os.Getenv(asNode) != "":
		if err := runNode(os.Getenv(asNode)); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Run(m)
}

// place is a store and the flags that select it. If it has two roles, they are those of the role that runs, and owner
// is the address for the commands that need the other one.
type place struct {
	name, at, owner string
	flags           []string
	// options are those of the program whose command line it is.
	options Options
}

// onEachStore runs a test on an empty store of each kind, in parallel.
func onEachStore(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	onBothStores(t, func(t *testing.T) place {
		dsn := pgtest.Database(t)
		return place{name: "postgres", at: dsn, flags: []string{"--database-url", dsn}}
	}, test)
}

// onEachSoundStore is onEachStore for a test that runs the doctor: the server of pgtest.Database may lose events in a
// crash. PostgreSQL has the two roles of docs/roles.sql.
func onEachSoundStore(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	onBothStores(t, func(t *testing.T) place { return underTwoRoles(t, soundServer(t).TCPDSN("postgres")) }, test)
}

func underTwoRoles(t *testing.T, dsn string) place {
	t.Helper()
	owner, app := kit.RolesOf(t, dsn)
	return place{name: "postgres", at: app, owner: owner, flags: []string{"--database-url", app}}
}

func onBothStores(t *testing.T, database func(t *testing.T) place, test func(t *testing.T, p place)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, database(t))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "shop.db")
		test(t, place{name: "sqlite", at: path, flags: []string{"--file", path}})
	})
}

// run runs a command line and returns what it printed on both outputs, and its status.
func (p place) run(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	flags := p.flags
	if p.owner != "" && slices.Contains(ownersCommands(t), commandOf(t, args)) {
		flags = []string{"--database-url", p.owner}
	}
	var o, e bytes.Buffer
	status = execute(ctx, append(args, flags...), p.options, strings.NewReader(""), &o, &e)
	return o.String(), e.String(), status
}

// must is run of a command that has to end with a status. It returns its output.
func (p place) must(t *testing.T, status int, args ...string) string {
	t.Helper()
	out, errs, got := p.run(t, args...)
	if got != status {
		t.Fatalf("millrace %q: status %d, want %d\n%s%s", args, got, status, out, errs)
	}
	return out + errs
}

// await repeats a command until its output matches a pattern.
func (p place) await(t *testing.T, want string, args ...string) {
	t.Helper()
	pattern, last := regexp.MustCompile(want), ""
	eventually(t, fmt.Sprintf("millrace %q prints %q", args, want), func() bool {
		out, errs, _ := p.run(t, args...)
		last = out + errs
		return pattern.MatchString(last)
	}, &last)
}

// eventually waits until a condition holds. If it never does, the test fails and shows the texts.
func eventually(t *testing.T, what string, holds func() bool, texts ...*string) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patient)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			for _, text := range texts {
				t.Log("at last:\n" + *text)
			}
			t.Fatal("never: " + what)
		}
	}
}

// masks are what differs between two runs.
var masks = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "<time>"},
	{regexp.MustCompile(`\d+\.\d s ago`), "<age> ago"},
	{regexp.MustCompile(`"silent":"[^"]*"`), `"silent":"<age>"`},
	// a minute may have ended or not
	{regexp.MustCompile(`"hour":\[[^]]*\]`), `"hour":[{"at":"<time>","applied":1,"behind":0,"lag":"<age>"}]`},
	// The end of a tenure is published later or not.
	{
		regexp.MustCompile(`"tenures":\[[^]]*\]`),
		`"tenures":[{"node":"<uuid>","nodeName":"shop-1","epoch":1,"began":"<time>","source":"heartbeat"}]`,
	},
	{regexp.MustCompile(`,"oldestSnapshot(Pid)?":[^,}]*`), ""},
	{regexp.MustCompile(`"sql":"(?:[^"\\]|\\.)*"`), `"sql":"<sql>"`},
	{regexp.MustCompile(`,"rate":[0-9.e+-]+`), ""},
	{regexp.MustCompile(`\b\d+/s\b`), "-"},
	{regexp.MustCompile(` (\d+m)?\d+(\.\d+)?m?s `), " <age> "},
	{regexp.MustCompile(` {2,}`), "  "}, // the widths of columns depend on what was masked
	{regexp.MustCompile(`,"states":\{[^}]*\}`), ""},
	{regexp.MustCompile(`(millrace |version":")(\(devel\)|v\d[^", ]*)`), "$1<version>"},
	{regexp.MustCompile(`: ERROR: [^()]*\(SQLSTATE \w+\)`), ""},
	{regexp.MustCompile(`go1\.[0-9.]+`), "<go>"},
	{regexp.MustCompile(`, commit [0-9a-f]+|,"commit":"[0-9a-f]+"`), ""},
	// The progress of a command that takes longer than a second.
	{
		regexp.MustCompile(`(?m)^(\d+ of \d+ projections?|moving tenant .*|\d+ events? imported|\d+ events?, position .*)\n`), "",
	},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.of.ReplaceAllString(text, m.by)
	}
	return text
}

// golden compares a text with a file, or writes the file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatal(difference(path, got, string(want)))
	}
}

// difference describes the first line that differs.
func difference(of, got, want string) string {
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < min(len(gotLines), len(wantLines)) && gotLines[i] == wantLines[i] {
		i++
	}
	line := func(lines []string) string { return append(lines, "(the end)")[min(i, len(lines))] }
	return fmt.Sprintf("%s, line %d: got\n%s\nwant\n%s\n\nrun go test ./commandline -update, and look at the difference", of, i+1, line(gotLines), line(wantLines))
}
