package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/store"
)

// Ensure inserts the rows of those projections that have none, one for each partition. Tenants that do not exist, or
// are archived or being dropped, are left out. So are retired names, and projections that have rows under the name
// RenamedFrom: Ensure returns these. If it creates a projection, it retires the name RenamedFrom.
//
// Nearly always, all rows exist: it reads once, and locks nothing. Otherwise it decides which projections get rows,
// finds where they begin, and decides again under the structural locks of their tenants. Names and states change under
// these alone, also by nodes of an earlier release: what such a node creates or renames first, stays. A projection
// whose tenant was archived, or created again, while its beginning was found gets no rows: the next call finds it anew.
func (p Names) Ensure(ctx context.Context, projections []engine.NewProjection) (left engine.LeftOut, err error) {
	var first, n rename.New
	err = p.db.View(ctx, func(v store.View) error {
		first = rename.New{}
		missing, err := withoutRows(v, projections)
		if err != nil || len(missing) == 0 {
			return err
		}
		first, _, err = register(v, missing)
		return err
	})
	fresh := slices.Concat(first.Create, first.Begin)
	if err != nil || len(fresh) == 0 {
		return first.Left, p.wrap(err, "list new projections")
	}
	begins, err := p.db.Begins(ctx, fresh)
	if err != nil {
		return first.Left, p.wrap(err, "find where new projections begin")
	}
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		tx.Lock(tenantsOf(fresh)...)
		var names map[string]rename.Names
		n, names, err = register(tx, fresh)
		if err != nil {
			return err
		}
		insert(tx, names, n.Create, begins)
		return nil
	})
	left = engine.LeftOut{
		Retired: append(first.Left.Retired, n.Left.Retired...), Waiting: append(first.Left.Waiting, n.Left.Waiting...),
	}
	if err != nil {
		return left, p.wrap(err, "register projections")
	}
	return left, p.beginVersions(ctx, n.Begin, begins)
}

// withoutRows returns the projections that have no rows, in their order.
func withoutRows(v store.View, projections []engine.NewProjection) (missing []engine.NewProjection, err error) {
	type named struct {
		Place  int    `json:"place"`
		Tenant string `json:"tenant"`
		Name   string `json:"name"`
	}
	list := make([]named, len(projections))
	for i, p := range projections {
		list[i] = named{i, p.Tenant, p.Name}
	}
	places, err := column[int](v, "missing_projections", jsonArray(list))
	slices.Sort(places)
	for _, place := range places {
		missing = append(missing, projections[place])
	}
	return missing, err
}

// register decides which of these projections get rows. It returns the names of their tenants, too.
func register(v store.View, projections []engine.NewProjection) (n rename.New,
	names map[string]rename.Names, err error) {
	var nodes []engine.NodeRow
	if slices.ContainsFunc(projections, func(p engine.NewProjection) bool { return p.RenamedFrom != "" }) {
		nodes, err = members(v)
		if err != nil {
			return n, nil, err
		}
	}
	names, err = namesOfTenants(v, tenantsOf(projections))
	if err != nil {
		return n, names, err
	}
	return rename.Register(projections, names, nodes), names, nil
}

func tenantsOf(projections []engine.NewProjection) []string {
	tenants := make([]string, len(projections))
	for i, p := range projections {
		tenants[i] = p.Tenant
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// withBegin returns those of new projections whose beginning is known, in tenants that were not created again since it
// was found.
func withBegin(projections []engine.NewProjection, names map[string]rename.Names,
	begins store.Begins) (still []engine.NewProjection) {
	for _, p := range projections {
		at, known := begins.At[p.ID()]
		if !p.BeginsLater() || known && at.Tenant == names[p.Tenant].Key {
			still = append(still, p)
		}
	}
	return still
}

// newRow is a row of insert_projections.sql. All rows of a projection have one token.
type newRow struct {
	Tenant     string `json:"tenant"`
	Name       string `json:"name"`
	Partition  int    `json:"partition"`
	Partitions int    `json:"partitions"`
	From       int32  `json:"from"`
	To         int32  `json:"to"`
	Token      string `json:"token"`
	Checkpoint int64  `json:"checkpoint"`
}

// insert inserts the rows and leases of projections that have none, and retires their earlier names. The caller holds
// the structural locks of their tenants.
func insert(tx store.Tx, names map[string]rename.Names, create []engine.NewProjection, begins store.Begins) {
	create = withBegin(create, names, begins)
	if len(create) == 0 {
		return
	}
	if begins.In != 0 {
		tx.Exec("check_incarnation", int64(begins.In))
	}
	var rows []newRow
	for _, p := range create {
		retire(tx, names[p.Tenant].Earlier(p))
		token, at := uuid.NewString(), begins.At[p.ID()]
		for _, n := range partition.Numbers(p.Partitions) {
			slots := partition.RangeOf(n, p.Partitions)
			rows = append(rows, newRow{p.Tenant, p.Name,
				n, max(1, p.Partitions), slots.From, slots.To, token, at.Checkpoint})
		}
	}
	list := jsonArray(rows)
	tx.Exec("insert_projections", list)
	tx.Exec("insert_leases", list)
}

// jsonArray returns a list as a JSON array, as an argument of a statement. Its values are numbers and texts, or structs
// of these.
func jsonArray[T any](list []T) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // these are always encoded
	}
	return string(text)
}

// beginVersions lets tenants begin with later versions, since they have no earlier ones. It goes on after errors, and
// returns them as an *engine.SwapError: the hook of one tenant may wait for a lock, or may not be able to connect,
// while all else works.
func (p Names) beginVersions(ctx context.Context, later []engine.NewProjection, begins store.Begins) error {
	failed := &engine.SwapError{Tenants: make(map[string]engine.SwapFailure)}
	for _, n := range later {
		err := p.beginVersion(ctx, n, begins)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		failed.Tenants[n.Tenant] = engine.SwapFailure{ID: n.ID(), Err: err}
	}
	if len(failed.Tenants) > 0 {
		return failed
	}
	return nil
}

// beginVersion lets readers of a tenant use a version from the beginning: it retires the earlier versions, inserts the
// rows, and runs the hook, in one transaction. It holds the structural lock of the tenant from the first statement on.
// If the tenant has an earlier version by now, it only inserts the rows.
func (p Names) beginVersion(ctx context.Context, n engine.NewProjection, begins store.Begins) error {
	return p.db.Lend(ctx, store.Lending{
		ID: n.ID(), What: "the beginning", Hook: n.Swap, Timeout: n.Timeout,
		Before: func(tx store.Tx) (runs bool, err error) {
			tx.Lock(n.Tenant)
			now, names, err := register(tx, []engine.NewProjection{n})
			if err != nil {
				return false, err
			}
			begin := withBegin(now.Begin, names, begins)
			for _, b := range begin {
				retire(tx, rename.NeverUsed(b.ID()))
			}
			insert(tx, names, slices.Concat(now.Create, begin), begins)
			return len(begin) > 0, nil
		},
	})
}
