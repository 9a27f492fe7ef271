package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"pgregory.net/rapid"
)

// moment is the state of a fleet at one time.
type moment struct {
	members []engine.Member
	refs    []engine.LeaseRef
	owner   map[int32]string // none where the ref is free
}

func (m moment) clone() moment {
	return moment{slices.Clone(m.members), slices.Clone(m.refs), maps.Clone(m.owner)}
}

func (m moment) runners(s engine.LeaseRef) (ids []string) {
	for _, member := range m.members {
		if member.Knows(s.ID.Tenant, s.ID.Name) {
			ids = append(ids, member.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (m moment) counts() (counts []engine.Want) {
	found := make(map[engine.Want]int)
	for _, s := range m.refs {
		c := engine.Want{Name: s.ID.Name}
		if s.ID.Partition > 0 || slices.ContainsFunc(m.members, func(m engine.Member) bool {
			return slices.Contains(m.Tenants, s.ID.Tenant) || !m.Filters[s.ID.Name].All()
		}) {
			c.Tenant = s.ID.Tenant
		}
		found[c]++
	}
	for c, n := range found {
		c.Leases = n
		counts = append(counts, c)
	}
	return counts
}

func (m moment) owned(node string) (own []engine.LeaseRef) {
	for _, s := range m.refs {
		if m.owner[s.Row] == node {
			own = append(own, s)
		}
	}
	return own
}

// balance returns the plan of the node at this moment.
func (m moment) balance(self string) Plan {
	return Balance(self, m.members, m.counts(), m.owned(self), m.owned(""))
}

// apply carries out a plan as the database would, and returns how many leases were claimed and released.
func (m moment) apply(self string, moves Plan) (claimed, released int) {
	wanted := make(map[int32]bool)
	for _, s := range m.refs {
		wanted[s.Row] = true
	}
	for _, row := range moves.Release {
		if m.owner[row] == self {
			delete(m.owner, row)
			released++
		}
	}
	for _, row := range moves.Claim {
		if wanted[row] && m.owner[row] == "" {
			m.owner[row] = self
			claimed++
		}
	}
	return claimed, released
}

// comeToRest lets all nodes act in rounds, each in another order, until a round moves nothing. It fails after too many
// rounds. If the nodes act at once, all see the state at the beginning of the round.
//
// One after the other, two rounds suffice: in the first each node comes down to its target and claims no more than
// that, so the leases that are free in the second are those that the others lack. At once, in each round after the
// first, the node whose claim arrives first gets all that it lacks of a class. So there are as many rounds as nodes,
// and one more.
func (m moment) comeToRest(t failer, atOnce bool, order func([]engine.Member) []engine.Member) (claimed, released int) {
	most := 2
	if atOnce {
		most = len(m.members) + 1
	}
	for round := 0; ; round++ {
		before, moved := m.clone(), 0
		for _, node := range order(slices.Clone(m.members)) {
			see := m
			if atOnce {
				see = before
			}
			c, r := m.apply(node.ID, see.balance(node.ID))
			claimed, released, moved = claimed+c, released+r, moved+c+r
		}
		if moved == 0 {
			return claimed, released
		}
		if round == most {
			t.Fatalf("%d leases move in round %d of a fleet of %d", moved, round+1, len(m.members))
		}
	}
}

type failer interface{ Fatalf(string, ...any) }

// check fails unless every lease that a member can run is owned by such a member, and every class is divided evenly.
func (m moment) check(t failer) {
	sizes, shares := make(map[string]int), make(map[string]map[string]int)
	for _, s := range m.refs {
		runners, owner := m.runners(s), m.owner[s.Row]
		if len(runners) == 0 {
			if owner != "" {
				t.Fatalf("%s owns %v, which no member can run", owner, s)
			}
			continue
		}
		if !slices.Contains(runners, owner) {
			t.Fatalf("%q owns %v, which %v know", owner, s, runners)
		}
		class := strings.Join(runners, " ")
		if shares[class] == nil {
			shares[class] = make(map[string]int)
		}
		sizes[class]++
		shares[class][owner]++
	}
	for class, size := range sizes {
		runners := strings.Fields(class)
		for _, node := range runners {
			if n := shares[class][node]; n < size/len(runners) || n > (size+len(runners)-1)/len(runners) {
				t.Fatalf("%s owns %d of the %d refs that %v know", node, n, size, runners)
			}
		}
	}
}

func shuffled[T any](t *rapid.T, items []T) []T { return rapid.Permutation(items).Draw(t, "order") }

// newMember returns a member with some of three projections, which may be restricted to some tenants, each or together.
func newMember(t *rapid.T, n int) engine.Member {
	m := engine.Member{ID: fmt.Sprintf("n%d", n)}
	some := func(of []string) (chosen []string) {
		for _, s := range of {
			if rapid.IntRange(0, 3).Draw(t, s) > 0 {
				chosen = append(chosen, s)
			}
		}
		return chosen
	}
	m.Projections = some([]string{"a", "b", "c"})
	if rapid.IntRange(0, 2).Draw(t, "restricted") == 0 {
		m.Tenants = some([]string{"t0", "t1", "t2"})
	}
	m.Filters = make(map[string]engine.TenantFilter)
	for _, name := range m.Projections {
		if rapid.IntRange(0, 2).Draw(t, "filtered") == 0 {
			m.Filters[name] = engine.NewTenantFilter(some([]string{"t0", "t[12]", "t?"}))
		}
	}
	return m
}

// TestFleetComesToRest lets nodes join, leave and die, and act on states of some time ago. Then they must come to rest.
// -rapid.seed=N repeats a failure, and -rapid.checks=100000 takes longer.
func TestFleetComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, born, row := moment{owner: make(map[int32]string)}, 0, int32(0)
		var past []moment
		// dead nodes still own their leases.
		var dead []string
		markDead := func(node string) { maps.DeleteFunc(now.owner, func(_ int32, o string) bool { return o == node }) }
		grow := func(n int) {
			for range n {
				now.refs = append(now.refs, engine.LeaseRef{Row: row, ID: projection.ID{
					Tenant:    fmt.Sprintf("t%d", rapid.IntRange(0, 5).Draw(t, "tenant")),
					Name:      rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"),
					Partition: rapid.IntRange(0, 3).Draw(t, "partition"),
				}})
				row++
			}
		}
		grow(rapid.SampledFrom([]int{0, 1, 3, 10, 40}).Draw(t, "refs"))
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			past = append(past, now.clone())
			recent := past[max(0, len(past)-4):]
			nodes := len(now.members)
			switch what := rapid.IntRange(0, 11).Draw(t, "what"); {
			case what <= 1 || nodes == 0:
				born++
				now.members = append(now.members, newMember(t, born))
			case what <= 3:
				i := rapid.IntRange(0, nodes-1).Draw(t, "gone")
				node := now.members[i].ID
				now.members = slices.Delete(now.members, i, i+1)
				if what == 2 {
					markDead(node)
				} else {
					dead = append(dead, node)
				}
			case what == 4 && len(dead) > 0:
				markDead(dead[0])
				dead = dead[1:]
			case what == 5 && len(now.refs) > 0:
				i := rapid.IntRange(0, len(now.refs)-1).Draw(t, "dropped")
				delete(now.owner, now.refs[i].Row)
				now.refs = slices.Delete(now.refs, i, i+1)
			case what == 6:
				grow(rapid.IntRange(1, 10).Draw(t, "more"))
			default:
				self := now.members[rapid.IntRange(0, nodes-1).Draw(t, "self")]
				ago := func(what string) moment { return rapid.SampledFrom(recent).Draw(t, what) }
				members, counts, leases := ago("members").members, ago("counts").counts(), ago("leases")
				own, free := leases.owned(self.ID), leases.owned("")
				moves := Balance(self.ID, members, counts, own, free)
				again := Balance(self.ID, shuffled(t, members), shuffled(t, counts), shuffled(t, own),
					shuffled(t, free))
				if !slices.Equal(moves.Claim, again.Claim) || !slices.Equal(moves.Release, again.Release) {
					t.Fatalf("%v, in another order %v", moves, again)
				}
				checkMoves(t, self, moves, own, free)
				now.apply(self.ID, moves)
			}
		}
		for _, node := range dead {
			markDead(node)
		}
		now.comeToRest(t, rapid.Bool().Draw(t, "at once"),
			func(m []engine.Member) []engine.Member { return shuffled(t, m) })
		now.check(t)
	})
}

// checkMoves fails if a move is not of an offered lease, or claims a lease that the node cannot run.
func checkMoves(t failer, self engine.Member, moves Plan, own, free []engine.LeaseRef) {
	take := func(rows []int32, from []engine.LeaseRef, allowed func(engine.LeaseRef) bool) {
		left := make(map[int32]bool)
		for _, s := range from {
			left[s.Row] = allowed(s)
		}
		for _, row := range rows {
			if !left[row] {
				t.Fatalf("%s moves row %d, twice or of others: %v of %v, %v", self.ID, row, moves, own, free)
			}
			delete(left, row)
		}
	}
	take(moves.Release, own, func(engine.LeaseRef) bool { return true })
	take(moves.Claim, free, func(s engine.LeaseRef) bool { return self.Knows(s.ID.Tenant, s.ID.Name) })
}
