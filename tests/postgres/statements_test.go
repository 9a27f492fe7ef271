package postgres_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

var update = flag.Bool("update", false,
	"write the statements that TestStatementsAreCounted finds to testdata/statements.txt")

const (
	statementsFile = "testdata/statements.txt"
	updateCommand  = "go test ./tests/postgres -run TestStatementsAreCounted -update"
	// quiet is how long no statement may follow a scenario. quietLong is how long one is waited for if the scenario is
	// not as expected, and quietBefore how long nothing must be sent before a scenario begins.
	quiet, quietLong, quietBefore = 100 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond
)

// Statements that are not counted.
var (
	// once are sent once in each connection of the pool, when it is first used for a batch.
	once = []string{"session_settings"}
	// polled are repeated until what they wait for has happened, or at an interval of their own, once for all
	// projections of a node. They are listed without a number.
	polled = []string{"stop_state", "command_parts", "open_operations"}
	// versioned are sent to some versions of the server, as part of a message with others.
	versioned = []string{"set local transaction_timeout = ?", "set local client_connection_check_interval = ?"}
)

// hourly are settings with which a node does nothing by itself within the test.
var hourly = millrace.Config{Store: tuning.Settings{Heartbeat: time.Hour, Reconcile: time.Hour, Advance: time.Hour},
	LeaseDuration:    3 * time.Hour,
	FailureDetection: 3 * time.Hour, PollInterval: time.Hour}

// statementCounts compares the statements of scenarios with the golden file, in which each scenario has a block.
type statementCounts struct {
	expected, found map[string]string
	names           []string // of the scenarios that ran, in order
	old             []string // of those in the file, in order
}

func readStatementCounts(t *testing.T) *statementCounts {
	t.Helper()
	c := &statementCounts{expected: make(map[string]string), found: make(map[string]string)}
	raw, err := os.ReadFile(statementsFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(raw), "\n\n") {
		if name, text, ok := strings.Cut(strings.TrimSpace(block), "\n"); ok && !strings.HasPrefix(name, "#") {
			name = strings.Trim(name, "[]")
			c.old, c.expected[name] = append(c.old, name), text
		}
	}
	return c
}

// write writes what was found, and keeps the blocks of scenarios that did not run.
func (c *statementCounts) write(t *testing.T) {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out,
		"# The statements that the library sends, by the names of their files in pgstore, or by their text where that is composed\n"+
			"# in Go. After an intended change, read the diff that this command makes:\n# %s\n", updateCommand)
	names := slices.Clone(c.names)
	for i, name := range c.old {
		if _, ran := c.found[name]; !ran {
			c.found[name] = c.expected[name]
			after := 0
			if i > 0 {
				after = slices.Index(names, c.old[i-1]) + 1
			}
			names = slices.Insert(names, after, name)
		}
	}
	for _, name := range names {
		fmt.Fprintf(&out, "\n[%s]\n%s\n", name, c.found[name])
	}
	if err := os.WriteFile(statementsFile, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare compares a scenario with the golden file.
func (c *statementCounts) compare(t *testing.T, name, found string) {
	t.Helper()
	c.names, c.found[name] = append(c.names, name), found
	if expected := c.expected[name]; found != expected && !*update {
		t.Errorf("%s: the statements are not those of %s\n%s\nIf the change is intended, run: %s", name, statementsFile,
			difference(expected, found), updateCommand)
	}
}

// difference lists the lines of both texts, those of one alone with a mark.
func difference(expected, found string) string {
	before, after := strings.Split(expected, "\n"), strings.Split(found, "\n")
	var lines []string
	for _, line := range before {
		mark := "  "
		if !slices.Contains(after, line) {
			mark = "- "
		}
		lines = append(lines, mark+line)
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// counted is a bundle with a second store, whose statements are counted. The bundle's own store watches, and appends
// where the statements of appends do not count.
type counted struct {
	*bundle
	counts *statementCounts
	tap    *wiretap
	tapped kit.PgStore
}

func (c *statementCounts) setup(t *testing.T, settings ...string) *counted {
	t.Helper()
	b := setup(t, pgstore.Options{}, append([]string{"sslmode", "disable"}, settings...)...)
	b.Patient()
	tap := &wiretap{}
	// The deletion of old keys is part of a random share of the appends.
	return &counted{
		bundle: b, counts: c, tap: tap,
		tapped: kit.PgStore{Store: b.open(b.dsn, tap.tap, pgstore.Options{KeyRetention: -1})},
	}
}

// during counts the statements of fn, and of what follows from it. If they are the expected ones, it waits for a moment
// in which others might follow, otherwise for longer. The statements varies are listed without a number, as polled ones
// are, whether or not they were sent.
func (c *counted) during(name string, fn func(), varies ...string) {
	c.T.Helper()
	c.tap.forget()
	fn()
	block := c.quiet(varies, func(block string) time.Duration {
		if block == c.counts.expected[name] && !*update {
			return quiet
		}
		return quietLong
	})
	c.counts.compare(c.T, name, block)
}

// times returns how often a statement was sent.
func (c *counted) times(name string) (times int) {
	for _, trip := range c.tap.sent() {
		for _, s := range namesOfTrip(trip) {
			if s.name == name {
				times++
			}
		}
	}
	return times
}

// settle waits until nothing is sent, except for checks of the other nodes.
func (c *counted) settle() {
	c.T.Helper()
	c.tap.forget()
	c.quiet([]string{"list_peers"}, func(string) time.Duration { return quietBefore })
}

// quiet waits until nothing is sent for a time, and returns what was sent.
func (c *counted) quiet(varies []string, enough func(block string) time.Duration) (block string) {
	c.T.Helper()
	for since := time.Now(); ; kit.Pass(c.Ctx, 10*time.Millisecond) {
		c.Must(c.Ctx.Err())
		if now := blockFrom(c.tap.sent(), varies); now != block {
			block, since = now, time.Now()
		}
		if time.Since(since) >= enough(block) {
			return block
		}
	}
}

// rounds returns the statements of n rounds of a node's periodic work. Each round begins with the statement marker.
func (c *counted) rounds(marker string, n int) string {
	c.T.Helper()
	c.tap.forget()
	var found []roundTrip
	c.Eventually(fmt.Sprintf("%d × %s", n, marker), func() bool {
		trips := c.tap.sent()
		var begins []int
		for i, trip := range trips {
			if slices.ContainsFunc(namesOfTrip(trip),
				func(s namedStatements) bool { return strings.Contains(s.name, marker) }) {
				begins = append(begins, i)
			}
		}
		if len(begins) <= n {
			return false
		}
		found = trips[begins[0]:begins[n]]
		return true
	})
	return blockFrom(found, nil)
}

// namesOfTrip names the statements of a round trip.
func namesOfTrip(trip roundTrip) (named []namedStatements) {
	for _, text := range trip {
		statements := []string{strings.TrimSpace(spaces.ReplaceAllString(text.sql, " "))}
		if text.simple {
			statements = splitStatements(text.sql)
		}
		for _, s := range namesOf(statements) {
			if text.described {
				s.name = "describe " + s.name
			}
			if !slices.Contains(versioned, s.name) {
				named = append(named, s)
			}
		}
	}
	return named
}

// blockFrom returns the block of a scenario in the golden file.
func blockFrom(trips []roundTrip, varies []string) string {
	times, size := make(map[string]int), make(map[string]int)
	for _, name := range varies {
		times[name] = 0
	}
	uncounted := append(slices.Clone(varies), polled...)
	roundTrips, statements := 0, 0
	for _, trip := range trips {
		named := namesOfTrip(trip)
		if len(named) == 0 || slices.Contains(once, named[0].name) {
			continue
		}
		if slices.ContainsFunc(named, func(s namedStatements) bool { return slices.Contains(uncounted, s.name) }) {
			for _, s := range named {
				times[s.name] += 0
			}
			continue
		}
		roundTrips++
		for _, s := range named {
			statements += s.count
			times[s.name]++
			size[s.name] = s.count
		}
	}
	lines := []string{fmt.Sprintf("%d round trips, %d statements", roundTrips, statements)}
	for _, name := range slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Compare(a, b) }) {
		line := fmt.Sprintf("%6d × %s", times[name], name)
		if slices.Contains(uncounted, name) {
			line = fmt.Sprintf("     … × %s", name)
		}
		if size[name] > 1 {
			line += fmt.Sprintf(": %d statements", size[name])
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// owned waits until n leases are held by nodes.
func (c *counted) owned(n int) {
	c.T.Helper()
	c.Eventually(fmt.Sprintf("%d leases are held", n), func() bool {
		return value[int](c.bundle, "select count(*) from millrace.leases where owner is not null") == n
	})
}

// at waits until n projections are at a checkpoint.
func (c *counted) at(n int, checkpoint int64) {
	c.T.Helper()
	c.Eventually(fmt.Sprintf("%d projections are at %d", n, checkpoint), func() bool {
		return value[int](c.bundle, "select count(*) from millrace.leases where checkpoint >= $1", checkpoint) == n
	})
}

// runtime makes a runtime whose statements are counted.
func (c *counted) runtime(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	c.T.Helper()
	config = kit.On(config, c.tapped)
	return c.Runtime(config, projections...)
}

// TestStatementsAreCounted counts what is sent to the server in each scenario, so that no change adds a statement
// unseen. All intervals are an hour, except the interval whose work is counted. So nothing else happens by itself.
func TestStatementsAreCounted(t *testing.T) {
	c := readStatementCounts(t)
	for _, group := range []struct {
		name string
		run  func(t *testing.T, c *statementCounts)
	}{
		{"appends and reads", countAppends}, {"tenants", countTenants}, {"start and stop", countStart},
		{"idle", countIdle},
		{"events", countEvents}, {"pause", countPause}, {"failures", countFailures},
		{"parked streams", countParkedStreams}, {"takeover", countTakeover},
	} {
		t.Run(group.name, func(t *testing.T) { group.run(t, c) })
	}
	if *update {
		c.write(t)
		return
	}
	if ran := flag.Lookup("test.run").Value.String(); !strings.Contains(ran, "/") {
		for _, name := range c.old {
			if _, found := c.found[name]; !found {
				t.Errorf("%s has a scenario that does not exist: %s", statementsFile, name)
			}
		}
	}
}
