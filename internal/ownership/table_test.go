package ownership

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// tableScripts have an input and its effects on each line. A lease is row@epoch; then p means that it is paused, c that
// it has commands, and a name that it is that projection's.
var tableScripts = map[string]string{
	"a lease from claim to release": `
		claimed 1@1 2@1   -> run 1@1, run 2@1
		keeps             -> 1, 2
		drain 1           -> drain 1@1
		drain 1           ->
		keeps             -> 2
		next              ->
		drained 1@1       ->
		next              -> release 1@1
		released          -> retire 1@1
		phase 1           ->
		phase 2           -> running`,
	"leases that come to rest during a release are gathered for the next one": `
		claimed 1@1 2@1 3@1 -> run 1@1, run 2@1, run 3@1
		drain 1 2 3         -> drain 1@1, drain 2@1, drain 3@1
		drained 2@1         ->
		next                -> release 2@1
		drained 1@1         ->
		drained 3@1         ->
		next                ->
		released            -> retire 2@1
		next                -> release 1@1, release 3@1
		released            -> retire 1@1, retire 3@1`,
	"reports of an earlier lease change nothing": `
		claimed 1@2  -> run 1@2
		drained 1@1  ->
		lost 1@1     ->
		next         ->
		phase 1      -> running
		lost 2@1     ->`,
	"a row that is claimed anew while its release is under way": `
		claimed 1@1  -> run 1@1
		drain 1      -> drain 1@1
		drained 1@1  ->
		next         -> release 1@1
		claimed 1@2  -> run 1@2
		released     ->
		phase 1      -> running`,
	"a failed release is tried again if the database still has the owner": `
		claimed 1@1 2@1 -> run 1@1, run 2@1
		drain 1 2       -> drain 1@1, drain 2@1
		drained 1@1     ->
		drained 2@1     ->
		next            -> release 1@1, release 2@1
		failed          ->
		next            ->
		begin           ->
		read 1@1        -> retire 2@1
		next            -> release 1@1
		released        -> retire 1@1`,
	"a projection that reports to be drained without having been asked is released": `
		claimed 1@1  -> run 1@1
		drained 1@1  ->
		next         -> release 1@1`,
	"a projection that is drained twice is released once": `
		claimed 1@1  -> run 1@1
		drain 1      -> drain 1@1
		drained 1@1  ->
		drained 1@1  ->
		next         -> release 1@1
		drained 1@1  ->
		released     -> retire 1@1
		next         ->`,
	"what the database does not list is lost": `
		claimed 1@1 2@1 3@1 -> run 1@1, run 2@1, run 3@1
		drain 3             -> drain 3@1
		begin               ->
		read 1@1            -> retire 2@1, retire 3@1, lost 2, lost 3`,
	"what only the database lists runs": `
		begin     ->
		read 1@4  -> run 1@4`,
	"the database is right about the epoch and about whose row it is": `
		claimed 1@3 2@3     -> run 1@3, run 2@3
		begin               ->
		read 1@2 2@3:other  -> run 1@2, run 2@3`,
	"a lease that ended during the read is not brought back": `
		claimed 1@1 2@1 -> run 1@1, run 2@1
		begin           ->
		lost 1@1        -> retire 1@1
		read 1@1 2@1    ->
		phase 1         ->
		begin           ->
		read 1@1 2@1    -> run 1@1`,
	"a release that the read overtakes": `
		claimed 1@1  -> run 1@1
		drain 1      -> drain 1@1
		drained 1@1  ->
		next         -> release 1@1
		begin        ->
		read         -> retire 1@1
		released     ->`,
	"what is paused is given back": `
		claimed 1@1 2@1p -> run 1@1
		next             -> release 2@1
		released         -> retire 2@1
		begin            ->
		read 1@1p 3@1p   -> drain 1@1
		next             -> release 3@1`,
	"who is given the lease that was read": `
		claimed 1@1 2@1 3@1  -> run 1@1, run 2@1, run 3@1
		drain 3              -> drain 3@1
		begin                ->
		read 1@1 2@1c 3@1c   -> revalidate 2@1
		begin                ->
		revalidate 1@1 2@1   -> retire 3@1, revalidate 1@1, revalidate 2@1, lost 3`,
	"a node that is started again": `
		adopt 1@1 2@1    ->
		adopt-draining 3@1 -> drain 3@1
		keeps            -> 1, 2
		begin            ->
		revalidate 2@1 3@1 4@1 -> retire 1@1, revalidate 2@1, run 4@1, lost 1
		drained 3@1      ->
		next             -> release 3@1`,
	"a node that closes": `
		claimed 1@1 2@1  -> run 1@1, run 2@1
		drain 1          -> drain 1@1
		close            -> drain 2@1
		closed           -> false
		claimed 3@1      ->
		next             -> release 3@1
		drained 1@1      ->
		drained 2@1      ->
		released         -> retire 3@1
		next             -> release 1@1, release 2@1
		closed           -> false
		failed           -> retire 1@1, retire 2@1
		closed           -> true`,
	"a node that closes after a release failed": `
		claimed 1@1  -> run 1@1
		drain 1      -> drain 1@1
		drained 1@1  ->
		next         -> release 1@1
		failed       ->
		next         ->
		close        ->
		next         -> release 1@1
		released     -> retire 1@1
		closed       -> true`,
	"a table without leases closes at once": `
		closed  -> false
		close   ->
		closed  -> true`,
}

func TestTable(t *testing.T) {
	for name, script := range tableScripts {
		t.Run(name, func(t *testing.T) {
			s := &tableScript{t: t, table: NewTable()}
			for line := range strings.Lines(strings.TrimSpace(script)) {
				input, want, _ := strings.Cut(strings.TrimSpace(line), "->")
				if got := s.do(strings.Fields(input)); got != strings.TrimSpace(want) {
					t.Errorf("%s-> %s", input, got)
				}
			}
		})
	}
}

type tableScript struct {
	t     *testing.T
	table *Table
	sent  []engine.Advance // with the release under way
}

func (s *tableScript) do(input []string) string {
	t := s.table
	var effects []Effect
	var said []string
	switch leases := s.leases(input[1:]); input[0] {
	case "claimed":
		effects = t.Claimed(leases)
	case "adopt", "adopt-draining":
		for _, l := range leases {
			effects = append(effects, t.Adopt(l, input[0] != "adopt")...)
		}
	case "drain":
		for _, l := range leases {
			effects = append(effects, t.Drain(l.Row)...)
		}
	case "close":
		effects = t.Close()
	case "closed":
		said = append(said, fmt.Sprint(t.Closed()))
	case "drained":
		t.Drained(engine.Advance{Lease: leases[0], To: 7})
	case "next":
		if advances := t.NextRelease(); len(advances) > 0 {
			s.sent = advances
			for _, a := range advances {
				said = append(said, "release "+text(a.Lease.Key()))
			}
		}
	case "released":
		effects = t.Released(s.sent, nil)
	case "failed":
		effects = t.Released(s.sent, errors.New("failed"))
	case "lost":
		effects, _ = t.Lost(leases[0].Key())
	case "begin":
		t.BeginRead()
	case "read", "revalidate":
		var lost []LostLease
		effects, lost = t.Read(leases, input[0] == "revalidate")
		slices.SortFunc(effects[:retired(effects)], func(a, b Effect) int { return int(a.Key.Row - b.Key.Row) })
		slices.SortFunc(lost, func(a, b LostLease) int { return int(a.Row - b.Row) })
		for _, l := range lost {
			said = append(said, fmt.Sprint("lost ", l.Row))
		}
	case "keeps":
		for _, l := range t.Keeps() {
			said = append(said, fmt.Sprint(l.Row))
		}
	case "phase":
		_, phase := t.Lease(leases[0].Row)
		said = append(said, string(phase))
	default:
		s.t.Fatalf("unknown input %q", input[0])
	}
	for i := len(effects) - 1; i >= 0; i-- {
		said = slices.Insert(said, 0, string(effects[i].Action)+" "+text(effects[i].Key))
	}
	return strings.Join(said, ", ")
}

// retired returns how many leases a read retires first, in no order.
func retired(effects []Effect) int {
	if n := slices.IndexFunc(effects, func(e Effect) bool { return e.Action != Retire }); n >= 0 {
		return n
	}
	return len(effects)
}

func text(k engine.LeaseKey) string { return fmt.Sprintf("%d@%d", k.Row, k.Epoch) }

func (s *tableScript) leases(names []string) (leases []engine.Lease) {
	for _, name := range names {
		key, id, _ := strings.Cut(name, ":")
		flags := strings.TrimLeft(key, "0123456789@")
		row, epoch, _ := strings.Cut(strings.TrimRight(key, "pc"), "@")
		l := engine.Lease{ID: projection.ID{Name: "p" + row}, HasCommands: strings.Contains(flags, "c")}
		if id != "" {
			l.ID.Name = id
		}
		if strings.Contains(flags, "p") {
			l.Desired = engine.WantPause
		}
		n, err := strconv.Atoi(row)
		if err != nil {
			s.t.Fatal(err)
		}
		l.Row = int32(n)
		if epoch != "" {
			l.Epoch, err = strconv.ParseInt(epoch, 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
		}
		leases = append(leases, l)
	}
	return leases
}

// fleetModel is a database, a node and its children, whose messages may be late, and whose node may be started again.
type fleetModel struct {
	owner    map[int32]int64 // epochs of the rows that this node owns, by the database
	epochs   map[int32]int64
	table    *Table
	children map[int32]engine.LeaseKey // what runs, by row
	draining map[engine.LeaseKey]bool  // of the children
	mail     []func()                  // to the node, in order
	release  []engine.Advance          // under way
	done     bool                      // the release under way committed
	closing  bool
}

func (m *fleetModel) lease(row int32, epoch int64) engine.Lease {
	return engine.Lease{Row: row, Epoch: epoch, ID: projection.ID{Name: fmt.Sprint("p", row)}}
}

// carryOut carries out effects as the supervisor does.
func (m *fleetModel) carryOut(t *rapid.T, effects []Effect) {
	for _, e := range effects {
		switch running := m.children[e.Key.Row]; e.Action {
		case Run:
			if running == e.Key {
				t.Fatalf("%v runs twice", e.Key)
			}
			if m.closing {
				t.Fatalf("%v runs though the node closes", e.Key)
			}
			m.children[e.Key.Row] = e.Key
		case Drain:
			if running == e.Key {
				m.draining[e.Key] = true
			}
		case Retire:
			if running == e.Key {
				delete(m.children, e.Key.Row)
				delete(m.draining, e.Key)
			}
		}
	}
	if m.release == nil {
		m.release, m.done = m.table.NextRelease(), false
		for _, a := range m.release {
			if key := a.Lease.Key(); m.children[key.Row] == key && !m.draining[key] {
				t.Fatalf("%v is released while it runs", key)
			}
		}
	}
}

// TestTableConverges gives a table random events of a node. Whatever is late or lost, in the end exactly the
// projections run whose leases the node owns in the database.
func TestTableConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &fleetModel{owner: make(map[int32]int64), epochs: make(map[int32]int64), table: NewTable(),
			children: make(map[int32]engine.LeaseKey), draining: make(map[engine.LeaseKey]bool)}
		row := rapid.Int32Range(1, 4)
		t.Repeat(map[string]func(*rapid.T){
			"claim":        func(t *rapid.T) { m.claim(t, row.Draw(t, "row"), rapid.Bool().Draw(t, "answered")) },
			"drain":        func(t *rapid.T) { m.carryOut(t, m.table.Drain(row.Draw(t, "row"))) },
			"come to rest": func(t *rapid.T) { m.rest(row.Draw(t, "row"), rapid.Bool().Draw(t, "heard")) },
			"commit":       func(*rapid.T) { m.commit() },
			"released":     func(t *rapid.T) { m.released(t, rapid.Bool().Draw(t, "failed")) },
			"deliver":      func(t *rapid.T) { m.deliver() },
			"take away":    func(t *rapid.T) { m.takeAway(row.Draw(t, "row")) },
			"lost":         func(t *rapid.T) { m.lost(t, row.Draw(t, "row")) },
			"read":         func(t *rapid.T) { m.read(t) },
			"restart":      func(t *rapid.T) { m.restart(t) },
			"":             func(*rapid.T) {},
		})
		m.comeToRest(t)
		for r, key := range m.children {
			if m.owner[r] != key.Epoch {
				t.Fatalf("%v runs, and the database has epoch %d", key, m.owner[r])
			}
		}
		for r, epoch := range m.owner {
			if m.children[r] != (engine.LeaseKey{Row: r, Epoch: epoch}) || m.draining[m.children[r]] {
				t.Fatalf("row %d is owned under epoch %d, and %v runs, draining: %v", r, epoch, m.children[r],
					m.draining[m.children[r]])
			}
		}
		m.closing = true
		m.carryOut(t, m.table.Close())
		for range 10 {
			m.comeToRest(t)
		}
		if !m.table.Closed() || len(m.owner) > 0 || len(m.children) > 0 {
			t.Fatalf("closed: %v, owned: %v, children: %v", m.table.Closed(), m.owner, m.children)
		}
	})
}

func (m *fleetModel) claim(t *rapid.T, row int32, answered bool) {
	if _, owned := m.owner[row]; owned {
		return
	}
	m.epochs[row]++
	m.owner[row] = m.epochs[row]
	if answered {
		m.carryOut(t, m.table.Claimed([]engine.Lease{m.lease(row, m.epochs[row])}))
	}
}

// rest brings a draining projection to rest. Its report may be lost.
func (m *fleetModel) rest(row int32, heard bool) {
	if key := m.children[row]; m.draining[key] && heard {
		m.mail = append(m.mail, func() { m.table.Drained(engine.Advance{Lease: m.lease(row, key.Epoch)}) })
	}
}

// commit lets the release under way take effect in the database.
func (m *fleetModel) commit() {
	for _, a := range m.release {
		if m.owner[a.Lease.Row] == a.Lease.Epoch {
			delete(m.owner, a.Lease.Row)
		}
	}
	m.done = m.release != nil
}

// released answers the release under way. The answer may be an error though the release took effect.
func (m *fleetModel) released(t *rapid.T, failed bool) {
	advances := m.release
	if advances == nil {
		return
	}
	var err error
	if failed || !m.done {
		err = errors.New("failed")
	}
	m.release = nil
	m.carryOut(t, m.table.Released(advances, err))
}

func (m *fleetModel) deliver() {
	if len(m.mail) > 0 {
		m.mail[0]()
		m.mail = m.mail[1:]
	}
}

func (m *fleetModel) takeAway(row int32) {
	if _, owned := m.owner[row]; owned {
		m.epochs[row]++
		delete(m.owner, row)
	}
}

func (m *fleetModel) lost(t *rapid.T, row int32) {
	if key := m.children[row]; key.Row != 0 && m.owner[row] != key.Epoch {
		effects, _ := m.table.Lost(key)
		m.carryOut(t, effects)
	}
}

func (m *fleetModel) read(t *rapid.T) {
	m.table.BeginRead()
	var owned []engine.Lease
	for row, epoch := range m.owner {
		owned = append(owned, m.lease(row, epoch))
	}
	slices.SortFunc(owned, func(a, b engine.Lease) int { return int(a.Row - b.Row) })
	if rapid.Bool().Draw(t, "committed meanwhile") {
		m.commit()
		m.released(t, false)
	}
	effects, _ := m.table.Read(owned, true)
	m.carryOut(t, effects)
}

// restart replaces the node: its mailbox and the answer to its release are lost.
func (m *fleetModel) restart(t *rapid.T) {
	m.table, m.mail, m.release = NewTable(), nil, nil
	for row, key := range m.children {
		m.carryOut(t, m.table.Adopt(m.lease(row, key.Epoch), m.draining[key]))
	}
}

// comeToRest ends everything under way: children come to rest, releases succeed, and the database is read.
func (m *fleetModel) comeToRest(t *rapid.T) {
	for range 6 {
		for len(m.mail) > 0 {
			m.deliver()
		}
		m.carryOut(t, nil)
		m.commit()
		m.released(t, false)
		m.read(t)
		for row := range m.children {
			m.rest(row, true)
		}
	}
}

// A statement on all leases of a node that stops would run into its time limit.
func TestReleasesHaveALimit(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{nil, errors.New("the network is cut")} {
		table := NewTable()
		for row := range int32(2*releaseMost + 7) {
			lease := engine.Lease{
				Row: row + 1, Epoch: 1, ID: projection.ID{Tenant: "t", Name: "p"}, Desired: engine.WantRun,
			}
			table.Claimed([]engine.Lease{lease})
			table.Drain(lease.Row)
			table.Drained(engine.Advance{Lease: lease})
		}
		table.Close()
		var sizes []int
		for next := table.NextRelease(); len(next) > 0; next = table.NextRelease() {
			sizes = append(sizes, len(next))
			if table.NextRelease() != nil {
				t.Error("a release begins before the last one has ended")
			}
			table.Released(next, fails)
		}
		want := []int{releaseMost, releaseMost, 7}
		if fails != nil {
			want = want[:1] // the others would fail too
		}
		if !slices.Equal(sizes, want) || !table.Closed() {
			t.Errorf("after %v, releases of %v leases, want %v; closed %v", fails, sizes, want, table.Closed())
		}
	}
}
