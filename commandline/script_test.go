package commandline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

// transcript records commands and their masked outputs.
type transcript struct {
	t *testing.T
	place
	// json adds --json to every command.
	json bool
	text strings.Builder
}

// step runs a command, which has to end with a status, and records it.
func (s *transcript) step(status int, args ...string) {
	s.t.Helper()
	if s.json {
		args = append(args, "--json")
	}
	out, errs, got := s.run(s.t, args...)
	if got != status {
		s.t.Errorf("millrace %q: status %d, want %d\n%s%s", args, got, status, out, errs)
	}
	fmt.Fprintf(&s.text, "$ millrace %s\n%s%s", strings.Join(args, " "), masked(out), masked(errs))
	if got != 0 {
		fmt.Fprintf(&s.text, "[status %d]\n", got)
	}
	s.text.WriteString("\n")
}

// say records what happens beside the commands.
func (s *transcript) say(text string) { fmt.Fprintf(&s.text, "# %s\n\n", text) }

// night is a night on call.
type night struct {
	*transcript
	models
	repaired string
	node     node
	watch    *watching
}

// TestPersonOnCall drives the whole command line against running nodes, in the order of a night on call, while the
// projections are watched. What it prints is the same for both stores.
func TestPersonOnCall(t *testing.T) {
	t.Parallel()
	onEachSoundStore(t, func(t *testing.T, p place) {
		n := &night{transcript: &transcript{t: t, place: p}, repaired: filepath.Join(t.TempDir(), "repaired")}
		if p.name == "sqlite" {
			p.must(t, misused, "nodes") // no file is created by mistake
		}
		n.begins()
		n.meetsPoison()
		n.repairs()
		n.pauses()
		n.servesTenants()
		n.readsEvents()
		n.rebuilds()
		n.deploysVersions()
		n.renames()
		golden(t, "oncall.golden", n.text.String())
	})
}

func (n *night) begins() {
	n.step(done, "migrate", "up")
	n.step(done, "migrate", "status")
	n.step(done, "tenants", "list")
	n.step(done, "projections", "status")
	n.step(done, "check")
	n.step(done, "doctor")
	watch, stop := n.place.watch(n.t)
	n.watch = watch
	n.t.Cleanup(stop)

	n.say("a node starts")
	n.node = n.startNodeOf(n.t, "shop-1", n.repaired, "mails,totals")
	n.await(n.t, "alive", "nodes")
	m, err := openModels(n.t.Context(), n.place.at)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(m.Close)
	n.models = m
	n.step(done, "events", "append", "order-1", "OrderPlaced", `{"amount": 12}`)
	n.step(done, "events", "append", "order-1", "OrderPaid", `{"amount": 12}`, "--expect", "1", "--key", "pay-1")
	n.step(done, "events", "append", "order-1", "OrderPaid", `{"amount": 12}`, "--expect", "1", "--key", "pay-1")
	n.step(failed, "events", "append", "order-1", "OrderPaid", `{"amount": 12}`, "--expect", "1")
	n.awaitAll(2)
	n.step(done, "projections", "list")
	n.step(done, "projections", "status")
	n.step(done, "nodes", "--json")
	n.watched("mails live 0 0 0 - - shop-1 2", "totals live 0 0 0 - - shop-1 2")
	n.rows("mails", "totals")
}

func (n *night) meetsPoison() {
	n.say("a poison event arrives")
	n.step(done, "events", "append", "order-2", "Poison", `{"amount": 0}`, "--header", "user=ann")
	n.awaitAll(3)
	n.step(done, "events", "append", "order-2", "Bounce")
	n.awaitAll(4)
	n.watched("mails live 0 1 0 - - shop-1 4", "totals live 0 1 0 - - shop-1 4")
	n.step(done, "projections", "status", "totals")
	n.rows("mails", "totals")
	n.step(foundSomething, "check")
	n.step(done, "check", "--allow-parked")
	n.step(foundSomething, "doctor")
	n.step(done, "dead-letters", "list")
	n.step(done, "dead-letters", "list", "totals", "--json")
	n.step(done, "dead-letters", "show", "totals", n.letter("totals"))
	n.step(done, "dead-letters", "show", "totals", n.letter("totals"), "--json")
	n.step(failed, "dead-letters", "replay", "totals", "--all", "--out-of-order")
}

func (n *night) repairs() {
	n.say("the handler is repaired")
	if err := os.WriteFile(n.repaired, nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.step(failed, "dead-letters", "replay", "totals", "--error", "division")
	n.step(done, "dead-letters", "replay", "totals", "--error", "division", "--out-of-order")
	n.rows("totals")
	n.step(misused, "dead-letters", "discard", "mails", "--all")
	n.step(misused, "dead-letters", "discard", "mails", "99", "--yes")
	n.step(done, "dead-letters", "discard", "mails", "--all", "--yes")
	n.step(done, "dead-letters", "count", "--state", "resolved,discarded")
	n.step(done, "dead-letters", "purge", "mails", "--all", "--older-than", "0s", "--yes", "--json")
	n.step(done, "dead-letters", "count", "--json")
	n.watched("mails live 0 0 0 - - shop-1 4", "totals live 0 0 0 - - shop-1 4")
	n.step(done, "check")
	n.step(done, "check", "--quiet")
}

func (n *night) pauses() {
	n.say("a projection is paused and resumed")
	n.step(done, "projections", "pause", "totals")
	n.step(done, "events", "append", "order-3", "OrderPlaced")
	n.awaitProjection("mails", 5)
	n.watched("mails live 0 0 0 - - shop-1 5", "totals paused 1 0 0")
	n.step(done, "projections", "status")
	n.step(done, "projections", "resume", "totals", "--json")
	n.awaitAll(5)
	n.rows("mails", "totals")
}

func (n *night) servesTenants() {
	n.say("tenants come and go")
	n.step(done, "tenants", "create", "acme", "globex")
	n.await(n.t, `(?:\S+ +1 +live\n){6}`, "projections", "list", "--all-tenants")
	n.step(done, "projections", "list", "--all-tenants")
	n.step(done, "projections", "pause", "totals", "--all-tenants")
	n.step(done, "projections", "resume", "totals", "--all-tenants")
	n.step(done, "tenants", "pause", "acme")
	n.step(done, "tenants", "resume", "acme")
	n.step(done, "tenants", "archive", "acme")
	n.step(failed, "events", "append", "a", "T", "--tenant", "acme")
	n.step(done, "tenants", "unarchive", "acme")
	n.step(misused, "tenants", "drop", "acme")
	n.step(done, "tenants", "drop", "acme", "--yes")
	n.step(done, "tenants", "list", "--json")
}

func (n *night) readsEvents() {
	n.say("events are read, exported and imported")
	n.step(done, "events", "tail", "-n", "2")
	n.step(done, "events", "stream", "order-2", "--json")
	n.step(done, "events", "count", "--type", "OrderPlaced")
	file := filepath.Join(n.t.TempDir(), "shop.ndjson.gz")
	n.must(n.t, done, "events", "export", "--output", file)
	n.say("events export --output shop.ndjson.gz; events import shop.ndjson.gz --tenant globex, twice")
	for range 2 {
		n.text.WriteString(masked(n.must(n.t, done, "events", "import", file, "--tenant", "globex")))
	}
	n.step(done, "events", "tail", "--tenant", "globex")

	n.say("what is in the events of a stream is removed")
	for _, name := range []string{"mails", "totals"} {
		n.await(n.t, `live +0 +\d+ +\d+ +\S+ +\S+ +\S+ +5 `, "projections", "status", name, "--tenant", "globex")
	}
	n.step(misused, "events", "erase", "order-3", "--tenant", "globex", "--yes")
	n.step(misused, "events", "erase", "order-3", "--tenant", "globex", "--reason", "request 4711")
	n.step(done, "events", "erase", "order-3", "--tenant", "globex", "--reason", "request 4711", "--yes")
	n.step(misused, "events", "erase", "order-9", "--tenant", "globex", "--reason", "request 4712", "--yes")
	n.step(misused, "events", "redact", "first", "--tenant", "globex", "--reason", "a password", "--yes")
	n.step(done, "events", "redact", "1", "2", "--tenant", "globex", "--reason", "a password", "--yes")
	n.step(done, "events", "stream", "order-3", "--tenant", "globex")
	n.step(done, "events", "erasures", "--tenant", "globex")
}

func (n *night) rebuilds() {
	n.say("a projection is rebuilt in its tables")
	n.step(misused, "projections", "rebuild", "mails")
	n.step(done, "projections", "rebuild", "mails", "--yes")
	n.awaitAll(5)
	n.step(done, "projections", "status")
	n.rows("mails") // also of the event that was discarded
	n.step(misused, "projections", "wait", "mails")
	n.step(misused, "projections", "cancel", "mails")

	n.say("a checkpoint is set back: the handler writes the rows of the events 4 and 5 again")
	n.step(misused, "projections", "reset", "totals", "3")
	n.step(misused, "projections", "reset", "totals", "soon")
	n.step(misused, "projections", "reset", "totals", "3", "--all-tenants")
	n.step(failed, "projections", "reset", "totals", "99", "--yes")
	n.step(done, "projections", "reset", "totals", "3", "--yes")
	n.awaitAll(5)
	n.rows("totals")
}

// deploysVersions replaces a projection in all tenants by a new version, while events arrive in one of them, and
// readers query. In PostgreSQL the nodes of the old release continue to run. A file has one node at a time.
func (n *night) deploysVersions() {
	n.say("events arrive in tenant globex, and readers query its mails")
	flow, stop := startTraffic(n.t, n.models, full("globex", "mails"))
	flow.flows()
	n.say("second versions are built beside the first, by a new release")
	old, release := []node{n.node}, "mails@2,totals@2"
	if n.place.name == "sqlite" {
		n.node.end(syscall.SIGTERM)
		old, release = nil, "mails,totals,mails@2,totals@2"
	}
	n.node = n.startNodeOf(n.t, "shop-2", n.repaired, release)
	for _, name := range []string{"mails", "totals", "mails@2", "totals@2"} {
		n.awaitProjection(name, 5)
	}
	n.await(n.t, `globex/mails@2 +1 +(live|catching up)`, "projections", "list", "--all-tenants")
	flow.flows()
	n.step(done, "projections", "list")
	n.step(misused, "projections", "swap", "mails@2")
	n.step(misused, "projections", "swap", "mails@2", "--all-tenants")
	n.step(done, "projections", "pause", "mails@2", "--tenant", "globex")
	n.say("500 events arrive at once, so the new version is behind when it is resumed")
	flow.acknowledge("burst", 500)
	n.step(failed, "projections", "swap", "mails@2", "--all-tenants", "--yes")
	n.step(done, "projections", "resume", "mails@2", "--tenant", "globex")
	n.step(done, "projections", "swap", "mails@2", "--all-tenants", "--catch-up", "2m", "--yes")
	n.step(misused, "projections", "status", "mails")
	flow.flows()
	n.step(failed, "projections", "drop-version", "mails@2", "--yes")
	n.step(misused, "projections", "drop-version", "totals@2")
	n.step(done, "projections", "drop-version", "totals@2", "--all-tenants", "--yes")
	flow.flows()
	stop()
	n.say("no reader has missed a row, or has seen the past")
	n.t.Logf("%d queries, %d acknowledged events, %d events", flow.queries.Load(), flow.acknowledged.Load(),
		flow.floor.Load())
	n.rows("mails")
	n.await(n.t, `^.*\n(?:\S+ +1 +live\n){4}$`, "projections", "list", "--all-tenants")
	n.step(done, "projections", "list", "--all-tenants")

	n.say("the nodes die")
	for _, node := range append(old, n.node) {
		node.end(os.Kill)
	}
	n.await(n.t, `^.*\n(?:\S+ +\d+ +dead .*\n)+$`, "nodes")
	n.await(n.t, `(?s)mails@2 +1 +node dead.*totals +1 +node dead`, "projections", "list")
	n.step(done, "projections", "list")
}

func (n *night) renames() {
	n.say("a projection is renamed, and a node with its new name starts")
	n.step(misused, "projections", "rename", "totals", "sums")
	n.step(done, "projections", "rename", "totals", "sums", "--all-tenants", "--yes")
	n.step(misused, "projections", "status", "totals")
	n.node = n.startNodeOf(n.t, "shop-3", n.repaired, "mails@2,sums")
	n.awaitProjection("sums", 5)
	n.awaitProjection("mails@2", 5)
	n.step(done, "projections", "list")
	n.step(failed, "projections", "forget", "sums", "--yes")

	n.say("the node stops")
	n.node.end(syscall.SIGTERM)
	n.step(done, "projections", "forget", "sums", "--yes")
	n.step(done, "projections", "list")
	n.step(misused, "projections", "create", "sums", "--from", "soon")
	n.step(done, "projections", "create", "sums", "--from", "end")
	n.step(failed, "projections", "create", "sums")
	n.step(done, "projections", "list")
	n.step(done, "version")
}

// watched waits until the watch shows these rows, and records them.
func (n *night) watched(rows ...string) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "# projections watch shows\n%s\n", masked(n.watch.shows(rows...)))
}

// rows records what readers see of read models in the default tenant.
func (n *night) rows(views ...string) {
	n.t.Helper()
	for _, view := range views {
		s, err := n.look(n.t.Context(), view, projection.DefaultTenant)
		if err != nil {
			n.t.Fatal(err)
		}
		n.say(fmt.Sprintf("readers see %d rows of %s, whose positions add up to %d", s.rows, view, s.sum))
	}
}

// awaitProjection waits until a projection has handled the events up to a position, and no command of it is open.
func (s *transcript) awaitProjection(name string, position int64) {
	s.t.Helper()
	s.await(s.t, fmt.Sprintf(`live +0 +\d+ +\d+ +\S+ +\S+ +\S+ +%d `, position), "projections", "status", name)
}

func (s *transcript) awaitAll(position int64) {
	s.t.Helper()
	s.awaitProjection("mails", position)
	s.awaitProjection("totals", position)
}

// letter returns the id of the first dead letter of a projection.
func (s *transcript) letter(name string) string {
	s.t.Helper()
	_, after, found := strings.Cut(s.must(s.t, done, "dead-letters", "list", name, "--json"), `"id":`)
	if !found {
		s.t.Fatalf("%s has no dead letter", name)
	}
	id, _, _ := strings.Cut(after, ",")
	return id
}
