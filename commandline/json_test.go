package commandline

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// documentFile describes the command line. Its section about JSON has a transcript of each command.
const documentFile = "../docs/cli.md"

// leaves returns the commands that do something, by their path below the root.
func leaves(cmd *cobra.Command) (found []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if !sub.HasSubCommands() {
			found = append(found, sub)
		}
		found = append(found, leaves(sub)...)
	}
	return found
}

func root() *cobra.Command { return new(cli).command() }

func pathOf(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "millrace ") }

// TestJSONIsDocumented runs every command with --json, and compares what it prints with docs/cli.md.
func TestJSONIsDocumented(t *testing.T) {
	t.Parallel()
	onEachSoundStore(t, func(t *testing.T, p place) {
		s := &transcript{t: t, place: p, json: true}
		files := t.TempDir() + "/"
		p.must(t, done, "migrate", "up")
		node := p.startNode(t)
		p.must(t, done, "events", "append", "order-1", "Poison", `{"amount": 12}`, "--header", "user=ann")
		p.must(t, done, "tenants", "create", "acme")
		s.awaitAll(1)
		p.await(t, `acme/mails +1 +live\nacme/totals +1 +live`, "projections", "list", "--all-tenants")
		s.steps("version", "migrate up", "migrate status")
		s.place = place{}
		s.steps("migrate sql")
		s.place = p
		s.steps("summary", "nodes")
		for _, line := range []string{"check", "doctor"} {
			s.step(foundSomething, line)
		}
		s.steps("tenants list", "tenants create acme", "tenants pause acme", "tenants recover acme",
			"tenants recover acme --others continue --yes",
			"tenants resume acme", "tenants archive acme", "tenants unarchive acme",
			"tenants drop acme --yes",
			"projections list", "projections show totals", "projections pause totals", "projections status totals")
		s.frames(2, "projections", "watch", "totals")
		s.steps("projections resume totals", "projections repartition mails 2",
			"dead-letters list totals", "dead-letters show totals 1", "dead-letters count",
			"dead-letters replay totals --limit 1 --error nothing",
			"dead-letters cancel totals 1", "dead-letters discard totals 1 --yes",
			"dead-letters purge totals --all --yes",
			"projections rebuild totals --yes", "projections reset mails 0 --yes",
			"events append order-1 Paid {} --key pay-1", "events tail", "events stream order-1", "events count",
			"events export --output "+files+"shop.ndjson", "events import "+files+"shop.ndjson")
		node.end(syscall.SIGTERM)
		s.operations()
		s.steps("projections rename totals sums --yes", "projections forget sums --yes",
			"projections create sums --from end")
		p.must(t, done, "events", "append", "customer-1", "Named", `{"name": "Ada"}`)
		s.steps("events erase customer-1 --reason requested --yes", "events redact 1 --reason password --yes",
			"events erasures")
		s.moves(files + "shop.db")
		document(t, "json", strings.ReplaceAll(s.text.String(), files, ""))
	})
}

// steps runs commands that succeed. Their arguments have no spaces.
func (s *transcript) steps(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		s.step(done, strings.Fields(line)...)
	}
}

// frames runs a command until it has printed n times, and interrupts it.
func (s *transcript) frames(n int, args ...string) {
	s.t.Helper()
	args = append(args, "--json")
	ctx, interrupt := context.WithCancel(s.t.Context())
	defer interrupt()
	out := &framesWriter{left: n, last: interrupt}
	var errs strings.Builder
	if status := execute(ctx, append(append(args, "--interval", "20ms"), s.flags...), Options{}, strings.NewReader(""),
		out, &errs); status != done {
		s.t.Errorf("millrace %q: status %d: %s", args, status, errs.String())
	}
	fmt.Fprintf(&s.text, "$ millrace %s\n%s\n", strings.Join(args, " "), masked(out.String()))
}

// framesWriter calls last after some writes.
type framesWriter struct {
	strings.Builder
	left int
	last func()
}

func (w *framesWriter) Write(frame []byte) (int, error) {
	w.left--
	if w.left == 0 {
		w.last()
	}
	return w.Builder.Write(frame)
}

// operations runs the commands about operations, of which one is open as long as no node runs.
func (s *transcript) operations() {
	s.t.Helper()
	s.requestRebuild("totals")
	s.steps("projections cancel totals")
	for {
		s.requestRebuild("totals")
		node := s.startNodeOf(s.t, "shop-2", "", "mails,totals,mails@2,totals@2")
		// The node may be quicker than the command, which then finds no operation.
		out, errs, status := s.run(s.t, "projections", "wait", "totals", "--json")
		if status == done {
			fmt.Fprintf(&s.text, "$ millrace projections wait totals --json\n%s\n", out)
			defer node.end(syscall.SIGTERM)
			break
		}
		if status != misused {
			s.t.Fatalf("millrace projections wait: status %d: %s", status, errs)
		}
		node.end(syscall.SIGTERM)
	}
	s.await(s.t, `(?s)mails@2 +\d +live.*totals@2 +\d +live`, "projections", "list")
	s.steps("projections swap mails@2 --yes", "projections drop-version totals@2 --yes")
}

// requestRebuild requests a rebuild while no node runs, and is interrupted while it waits for one.
func (s *transcript) requestRebuild(name string) {
	s.t.Helper()
	ctx, interrupt := context.WithCancel(s.t.Context())
	defer interrupt()
	var out, errs strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, append([]string{"projections", "rebuild", name, "--yes"}, s.flags...), Options{},
			strings.NewReader(""), &out, &errs)
	}()
	s.await(s.t, "open operation: rebuild", "projections", "status", name)
	interrupt()
	if status := <-ended; status != failed ||
		!strings.Contains(errs.String(), "see millrace projections wait and cancel") {
		s.t.Fatalf("status %d: %s%s", status, out.String(), errs.String())
	}
}

// moves runs the command that moves a tenant. It needs two stores.
func (s *transcript) moves(path string) {
	s.t.Helper()
	own := s.place
	defer func() { s.place = own }()
	s.place = underTwoRoles(s.t, pgtest.Database(s.t))
	s.must(s.t, done, "migrate", "up")
	from := place{flags: []string{"--file", path}}
	from.must(s.t, done, "migrate", "up")
	s.must(s.t, done, "events", "append", "order-1", "Paid")
	s.steps("tenants move default --to "+path+" --rebuild-all --yes", "tenants move default --to "+path+
		" --rebuild-all --yes")
}

// document compares a part of the document with a text, or writes it with -update.
func document(t *testing.T, part, got string) {
	t.Helper()
	raw, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n```console\n", part), "```\n"
	before, after, found := strings.Cut(string(raw), begin)
	want, rest, closed := strings.Cut(after, end)
	if !found || !closed {
		t.Fatalf("%s has no part %s", documentFile, part)
	}
	switch {
	case *update:
		if err := os.WriteFile(documentFile, []byte(before+begin+got+end+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != want:
		t.Error(difference(documentFile, got, want))
	}
}

// ownersCommands are the commands of which docs/cli.md says that they need the owner.
func ownersCommands(t *testing.T) (paths []string) {
	t.Helper()
	raw, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(raw), "**Two roles.**")
	list, _, found := strings.Cut(list, "need the role that owns the tables")
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
		paths = append(paths, m[1])
	}
	if !found || len(paths) == 0 {
		t.Fatalf("%s names no commands of the owner", documentFile)
	}
	return paths
}

// commandOf returns the path of the command of a command line.
func commandOf(t *testing.T, args []string) string {
	t.Helper()
	cmd, _, err := root().Find(args)
	if err != nil {
		return "" // the misuse of a test
	}
	return pathOf(cmd)
}

// TestCommandsOfTheOwnerAreRefusedToOthers runs these commands as the role that runs. All others work as that role:
// TestJSONIsDocumented and TestPersonOnCall run them.
func TestCommandsOfTheOwnerAreRefusedToOthers(t *testing.T) {
	t.Parallel()
	p := underTwoRoles(t, pgtest.Database(t))
	file := filepath.Join(t.TempDir(), "shop.db")
	(place{}).must(t, done, "migrate", "up", "--file", file)
	app := place{flags: p.flags}
	refused := make(map[string]bool)
	refuse := func(line string) {
		t.Helper()
		args := strings.Fields(line)
		refused[commandOf(t, args)] = true
		if out := app.must(t, failed, args...); !strings.Contains(out, "(SQLSTATE 42501)") ||
			strings.Count(out, ": run this as the role ") != 1 {
			t.Errorf("millrace %s: %s", line, out)
		}
	}
	refuse("migrate up")
	p.must(t, done, "migrate", "up")
	p.must(t, done, "tenants", "create", "acme", "old")
	p.must(t, done, "tenants", "archive", "old")
	app.must(t, done, "events", "append", "customer-1", "Named")
	for _, line := range []string{"tenants create new", "tenants archive acme", "tenants unarchive old",
		"tenants drop acme --yes",
		"tenants move acme --to " + file + " --rebuild-all --yes",
		"events erase customer-1 --reason requested --yes", "events redact 1 --reason password --yes"} {
		refuse(line)
	}
	for _, path := range ownersCommands(t) {
		if !refused[path] {
			t.Errorf("millrace %s is not refused to the role that runs", path)
		}
		delete(refused, path)
	}
	if len(refused) > 0 {
		t.Errorf("%s does not name %v", documentFile, refused)
	}
}

// TestDocumentedJSONIsOneObjectALine checks that every line that a command prints with --json is an object.
func TestDocumentedJSONIsOneObjectALine(t *testing.T) {
	t.Parallel()
	objects := 0
	for line := range strings.Lines(documented(t)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "[status ") ||
			strings.HasPrefix(line, "this command cannot know ") { // on the error output
			continue
		}
		objects++
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if objects < 20 {
		t.Errorf("only %d objects were seen", objects)
	}
}

func documented(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(raw), "<!-- json -->\n```console\n")
	part, _, _ := strings.Cut(after, "```\n")
	return part
}

func TestDocumentKnowsExactlyTheCommandsThatExist(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	content := string(raw)
	tour, _, _ := strings.Cut(content, "\n## JSON")
	shown := make(map[string]bool)
	for line := range strings.Lines(documented(t)) {
		if command, ok := strings.CutPrefix(line, "$ millrace "); ok {
			cmd, _, err := root().Find(strings.Fields(command))
			if err != nil {
				t.Errorf("%s: %s: %v", documentFile, line, err)
			}
			shown[pathOf(cmd)] = true
		}
	}
	for _, cmd := range leaves(root()) {
		path := pathOf(cmd)
		if !strings.Contains(tour, path) {
			t.Errorf("%s does not mention %q", documentFile, path)
		}
		if !shown[path] {
			t.Errorf("%s does not show the JSON of %q", documentFile, path)
		}
	}
	mentioned := regexp.MustCompile("(?:^|`|\\$ )millrace ([^`|\n]+)")
	lines := 0
	for _, m := range mentioned.FindAllStringSubmatch(content, -1) {
		lines++
		args := strings.Fields(m[1])
		cmd, rest, err := root().Find(args)
		if err != nil || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			t.Errorf("%s mentions %q, which does not exist: %v", documentFile, m[1], err)
			continue
		}
		for _, arg := range rest {
			if name, ok := strings.CutPrefix(arg, "--"); ok {
				name, _, _ = strings.Cut(name, "=")
				if name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: %q: there is no flag --%s", documentFile, m[1], name)
				}
			}
		}
	}
	if lines < 30 {
		t.Errorf("only %d mentioned commands were seen", lines)
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	n := 0
	for _, cmd := range leaves(root()) {
		n++
		if cmd.Short == "" || !strings.Contains(cmd.Example, "millrace "+pathOf(cmd)) {
			t.Errorf("%q: short %q, example %q", pathOf(cmd), cmd.Short, cmd.Example)
		}
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(strings.TrimSpace(line), "export ") {
				continue
			}
			if _, command, found := strings.Cut(line, "millrace "); found {
				command, _, _ = strings.Cut(command, "|")
				if sub, _, err := root().Find(strings.Fields(command)); err != nil || sub.HasSubCommands() {
					t.Errorf("%q: the example %q does not exist: %v", pathOf(cmd), strings.TrimSpace(line), err)
				}
			}
		}
	}
	if n < 25 {
		t.Errorf("only %d commands were seen", n)
	}
}

func TestMisuseNamesItselfAndExitsWith2(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	path := filepath.Join(t.TempDir(), "shop.db")
	if _, errs, status := (place{}).run(t, "--file", path, "migrate", "up"); status != done {
		t.Fatal(errs)
	}
	for says, line := range map[string]string{
		"no store is given":                               "nodes --database-url=",
		"unknown command \"nodez\"":                       "nodez",
		"unknown flag: --bogus":                           "nodes --bogus",
		`invalid argument "soon" for "--timeout"`:         "nodes --timeout soon",
		"--timeout must not be negative: -1s":             "nodes --timeout=-1s --file " + path,
		"--file and --database-url exclude each other":    "nodes --file x --database-url y",
		"--schema is for PostgreSQL":                      "nodes --schema x --file " + path,
		"--tenant and --all-tenants exclude":              "projections list --tenant a --all-tenants --file " + path,
		"no such file":                                    "nodes --file /nowhere/shop.db",
		`unknown tenant "nope"`:                           "projections list --tenant nope --file " + path,
		`unknown projection "nope" in tenant "default"`:   "projections pause nope --file " + path,
		`unknown projection "nop" in any tenant`:          "projections pause nop --all-tenants --file " + path,
		"pause needs PROJECTION...: requires at least 1":  "projections pause --file " + path,
		"reset needs PROJECTION POSITION: accepts 2":      "projections reset totals --file " + path,
		"must be from 1 to 1024: \"0\"":                   "projections repartition totals 0 --file " + path,
		"--interval must be at least 10ms: 1ms":           "projections watch --interval 1ms --file " + path,
		`--state must be parked`:                          "dead-letters list --state bad --file " + path,
		`the id of a dead letter is a number from 1: "x"`: "dead-letters show totals x --file " + path,
		`the number of a command is from 1: "x"`:          "dead-letters cancel totals x --file " + path,
		"name the dead letters by their ids":              "dead-letters replay totals --file " + path,
		"--all excludes":                                  "dead-letters replay totals 1 --all --file " + path,
		"--limit must be at least 1: 0":                   "dead-letters list --limit 0 --file " + path,
		"--expect must be any, none or a version":         "events append a T --expect soon --file " + path,
		`the body is not valid JSON: "{"`:                 "events append a T { --file " + path,
		"-n must not be negative: -1":                     "events tail -n -1 --file " + path,
		"has no stream \"s\"":                             "events stream s --file " + path,
		"--after must not be negative: -2":                "events count --after -2 --file " + path,
		"--to must name the other store":                  "tenants move acme --file " + path,
		"after must be from 0 to":                         "migrate sql --after 99",
		"migrate sql is for PostgreSQL":                   "migrate sql --file " + path,
		"have no effect here":                             "nodes --tenant a --file " + path,
		"Options.Schema must not be \"pg_x\"":             "nodes --database-url x --schema pg_x",
		"cannot parse `garbage`":                          "nodes --database-url garbage",
		"failed to parse as URL":                          "doctor --database-url postgres://%zz",
		"sslmode is invalid":                              "nodes --database-url postgres://localhost/shop?sslmode=bogus",
		"it is a folder":                                  "nodes --file " + filepath.Dir(path),
		"stat /nowhere: no such file or directory":        "migrate up --file /nowhere/shop.db",
		"tenant must not contain control characters":      "tenants create a\x01b --file " + path,
		"must name a version from 2 on, such as totals@2": "projections swap totals --file " + path,
		"such as totals@2: \"totals\"":                    "projections drop-version totals --file " + path,
		"name \"sums\" without its version: \"sums@2\"":   "projections rename totals sums@2 --file " + path,
		"differ from the old one: \"totals\"":             "projections rename totals totals --file " + path,
		"unknown help topic \"nodez\"":                    "help nodez",
		"completion has no command \"fish2\"":             "completion fish2",
		"--max-lag must be positive: 0s":                  "check --max-lag 0s --file " + path,
		"--output":                                        "events export --output " + path + " --file " + path,
	} {
		out, errs, status := (place{}).run(t, strings.Fields(line)...)
		if status != misused || !strings.Contains(errs, says) || out != "" {
			t.Errorf("%s: status %d, printed %q and %q, want %q", line, status, out, errs, says)
		}
	}
	// A store without tables is no misuse.
	out, errs, status := (place{}).run(t, "nodes", "--database-url", dsn)
	if status != failed || !strings.Contains(errs, "run millrace migrate up") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
}
