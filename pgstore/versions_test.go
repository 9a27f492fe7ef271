package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

// While an old snapshot is open, as that of a dump, the versions of all rows since then stay. What a node asks all the
// time must not read them.
func TestChecksOfNodesReadNoOldVersions(t *testing.T) {
	t.Parallel()
	const leases, heartbeats, advances = 20, 1000, 100
	ctx := testContext(t)
	store := newStore(t)
	for _, table := range []string{"leases", "nodes"} { // otherwise the server may analyse at any time
		mustExec(t, store, "alter table millrace."+table+" set (autovacuum_enabled = off)")
	}
	node := aNode()
	session := must(connect(t, store, node))(t).(*nodeSession)
	owners := []string{node.ID}
	for range 2 {
		other := engine.Node{ID: uuid.NewString(), LeaseDuration: time.Hour}
		none := []string{}
		mustExec(t, store, store.control.sql("register"), other.ID, none, none, none, none, 1,
			other.LeaseDuration.Microseconds(), "")
		owners = append(owners, other.ID)
	}
	mustExec(t, store, `insert into millrace.projections (tenant, name)
		select 'default', 'p' || n from generate_series(1, $1::int) n`, leases)
	mustExec(t, store, `insert into millrace.leases (id, owner)
		select id, ($1::uuid[])[1 + id % 3] from millrace.projections`, owners)
	mustExec(t, store, "analyze millrace.leases, millrace.nodes")

	snapshot := must(store.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = snapshot.Rollback(ctx) }()
	execIn(t, snapshot, "select")
	for range heartbeats {
		mustExec(t, store, "update millrace.nodes set expires_at = clock_timestamp() + interval '1 hour'")
	}
	for range advances {
		mustExec(t, store, "update millrace.leases set checkpoint = checkpoint + 1")
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, store, "analyze millrace.leases, millrace.nodes")
		}
		tx := must(store.pool.Begin(ctx))(t)
		execIn(t, tx, queries.Text(skipping))
		searched := blocksOf(ctx, t, tx, store.control.sql("free_leases"), []string{"p1"}, []string{}, true, true)
		noError(t, tx.Rollback(ctx))
		listed := blocksOf(ctx, t, session.conn, store.control.sql("list_peers"), node.ID, []string{})
		t.Logf("analyzed %v: the search reads %v blocks, the list of nodes %v", analyzed, searched, listed)
		if searched > 60 || listed > 30 {
			t.Errorf("analyzed %v: the search reads %v blocks, the list of nodes %v", analyzed, searched, listed)
		}
	}
	free := must(store.port().Free(ctx, node, true, true))(t)
	peers := must(session.ListPeers(ctx))(t).Peers
	if len(free) > 0 || len(peers) != len(owners)-1 {
		t.Errorf("found the free leases %v and the nodes %v", free, peers)
	}
}

// blocksOf returns how many blocks a statement reads. It counts a block again each time that it is read.
func blocksOf(ctx context.Context, t *testing.T, conn querier, sql string, args ...any) float64 {
	t.Helper()
	var plans []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	err := conn.QueryRow(ctx, "explain (analyze, buffers, timing off, format json) "+sql,
		append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&plans)
	noError(t, err)
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
