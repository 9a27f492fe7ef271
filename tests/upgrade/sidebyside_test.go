package upgrade_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
	"github.com/millrace-go/millrace/tests/upgrade/service"
)

// side is a database on which nodes of two releases run.
type side struct {
	*testing.T
	place string
	store service.Store // of this release
	admin *admin.Admin
	acks  acknowledged
}

// A deployment replaces the nodes of the earlier release while they append, and nodes of both die. Each release also
// has a projection and a tenant that the other does not know.
func TestNodesOfAnEarlierReleaseRunBesideNewOnes(t *testing.T) {
	t.Parallel()
	s := &side{T: t, place: pgtest.Database(t), acks: acknowledged{positions: make(map[string][]int64)}}
	older.run(t, "fill", s.place)
	before := older.contents(t, s.place)
	first := older.serve(t, &s.acks, "old-1", s.place, "-projections", "totals,shares,mails,late,legacy", "-create",
		"made-by-old")
	s.store = opened(t, s.place)
	var err error
	s.admin, err = admin.New(s.store)
	must(t, err)
	must(t, s.admin.Resume(limited(t), projection.ID{Tenant: "acme", Name: "totals"}))
	s.raiseVersions()
	second := newer.serve(t, &s.acks, "new-1", s.place, "-projections", "totals,shares,mails,late,novel", "-create",
		"made-by-new")
	s.share("old-1", "new-1")
	s.erase()
	s.parked("made-by-old", "made-by-new")

	_ = first.kill()
	s.ownsAll("new-1")
	third := older.serve(t, &s.acks, "old-2", s.place, "-projections", "totals,shares,mails,late,legacy", "-mended")
	s.share("old-2", "new-1")
	_ = second.kill()
	s.ownsAll("old-2")

	// The command of the new program is carried out by the owner, which is old.
	shares := projection.ID{Tenant: "made-by-new", Name: "shares"}
	must(t, s.admin.Pause(limited(t), shares))
	must(t, s.admin.Resume(limited(t), shares))
	result, err := s.store.DeadLetters(shares).Replay(limited(t),
		projection.DeadLetterFilter{All: true, OutOfOrder: true}, 10_000)
	if err != nil || result.Done == 0 || result.Failed > 0 {
		t.Errorf("the old node replayed %+v, %v", result, err)
	}
	fourth := newer.serve(t, &s.acks, "new-2", s.place, "-projections", "totals,shares,mails,late,novel", "-mended")
	s.share("old-2", "new-2")
	third.stop(t)
	s.ownsAll("new-2")
	fourth.stop(t)
	s.finish(before)
}

// erase redacts events while nodes of both releases run. They stop for it, and go on beside the table of erasures.
func (s *side) erase() {
	s.Helper()
	store, err := pgstore.Open(limited(s.T), s.place, pgstore.Options{})
	must(s.T, err)
	defer store.Close()
	_, err = store.Append(limited(s.T), "person", event.Any, event.Untyped("Named", "Ada"),
		event.Untyped("Named", "Ada"))
	must(s.T, err)
	erased, err := store.EraseStream(limited(s.T), "person", "request 17")
	if err != nil || erased.Events != 2 {
		s.Errorf("erased %+v, %v", erased, err)
	}
}

// raiseVersions makes each part of the schema one version newer than that of the earlier release, unless this release
// has a migration that did so.
func (s *side) raiseVersions() {
	s.Helper()
	files, _, err := sources(releases[len(releases)-1])
	must(s.T, err)
	versions := make(map[string]int)
	for path := range files {
		versions[filepath.ToSlash(filepath.Dir(path))]++
	}
	conn, err := pgx.Connect(limited(s.T), s.place)
	must(s.T, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(limited(s.T), `insert into millrace.schema_versions (version, name)
		select max(version) + 1, 'synthetic' from millrace.schema_versions having max(version) = $1`, versions["pgstore/migrations/control"])
	must(s.T, err)
	_, err = conn.Exec(limited(s.T), "update millrace.tenants set version = version + 1 where version = $1",
		versions["pgstore/migrations/tenant"])
	must(s.T, err)
}

// finish handles what is left, and checks everything.
func (s *side) finish(before map[string]*service.Content) {
	s.Helper()
	older.run(s.T, "-projections", "totals,shares,mails,late,legacy", "finish", s.place)
	must(s.T, service.Finish(limited(s.T), s.store, slices.Concat(service.Kept, []string{"late", "novel"})...))
	for name, c := range checkFinished(s.T, s.store, before) {
		if c.State != tenancy.Active {
			continue
		}
		checkApplied(s.T, name+"/legacy", c.Events, c.Applied["legacy"])
		checkApplied(s.T, name+"/novel", c.Events, c.Applied["novel"])
		stored := make(map[int64]bool)
		for _, e := range c.Events {
			stored[e.Position] = true
		}
		s.acks.Lock()
		if len(s.acks.positions[name]) < 20 {
			s.Errorf("tenant %s: only %d appends", name, len(s.acks.positions[name]))
		}
		for _, position := range s.acks.positions[name] {
			if !stored[position] {
				s.Errorf("tenant %s: the event at %d was acknowledged and is gone", name, position)
			}
		}
		s.acks.Unlock()
	}
}

// owners returns how many leases each node holds of the projections that both releases have, by the names of the nodes.
func (s *side) owners() map[string]int {
	s.Helper()
	status, err := s.admin.Status(limited(s.T), admin.StatusFilter{Names: slices.Concat(service.Kept, []string{"late"}),
		Limit: 10_000})
	must(s.T, err)
	owners := make(map[string]int)
	for _, p := range status.Projections {
		switch {
		case p.ID.Tenant == "closed":
		case p.NotOwned > 0 || p.Owner == "":
			owners[""]++
		default:
			owners[p.OwnerName]++
		}
	}
	return owners
}

// share waits until both nodes, and no other, hold leases of the projections that both releases have.
func (s *side) share(a, b string) {
	s.Helper()
	s.eventually(a+" and "+b+" share all", func(owners map[string]int) bool {
		return len(owners) == 2 && owners[a] > 0 && owners[b] > 0
	})
}

// ownsAll waits until a node holds all leases of the projections that both releases have.
func (s *side) ownsAll(name string) {
	s.Helper()
	s.eventually(name+" owns all", func(owners map[string]int) bool { return len(owners) == 1 && owners[name] > 0 })
}

// parked waits until every projection that both releases have has parked events of these tenants.
func (s *side) parked(tenants ...string) {
	s.Helper()
	s.eventually("events are parked", func(map[string]int) bool {
		status, err := s.admin.Status(limited(s.T),
			admin.StatusFilter{Tenants: tenants, Names: service.Kept, Parked: true})
		must(s.T, err)
		return len(status.Projections) >= len(tenants)*len(service.Kept)
	})
}

func (s *side) eventually(what string, holds func(owners map[string]int) bool) {
	s.Helper()
	ctx := limited(s.T)
	for owners := s.owners(); !holds(owners); owners = s.owners() {
		kit.Pass(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			s.Fatalf("not within %v: %s; the owners are %v", patient, what, owners)
		}
	}
}
