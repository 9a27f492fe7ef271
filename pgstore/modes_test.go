package pgstore

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
)

var mode = flag.String("mode", "", "the default_query_exec_mode of the stores of all tests, such as exec")

// queryModes are those of default_query_exec_mode.
var queryModes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// inMode sets the mode of a pool: that of the subtest of TestStatementsRunInEveryQueryMode, or that of the flag. In all
// tests the arguments of all statements are checked.
func inMode(t testing.TB, config *pgxpool.Config) {
	config.ConnConfig.Tracer = plainArguments{t}
	for _, m := range queryModes {
		if strings.HasPrefix(t.Name(), "TestStatementsRunInEveryQueryMode/"+m.String()+"/") || m.String() == *mode {
			config.ConnConfig.DefaultQueryExecMode = m
		}
	}
}

// plainArguments fails a test whose statements have an argument that the driver can encode only when it has asked the
// server for the types. In the modes exec and simple_protocol it does not ask.
type plainArguments struct{ testing.TB }

func (p plainArguments) TraceQueryStart(ctx context.Context, conn *pgx.Conn,
	q pgx.TraceQueryStartData) context.Context {
	p.check(conn, q.SQL, q.Args)
	return ctx
}

func (plainArguments) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (plainArguments) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (p plainArguments) TraceBatchQuery(_ context.Context, conn *pgx.Conn, q pgx.TraceBatchQueryData) {
	p.check(conn, q.SQL, q.Args)
}

func (plainArguments) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (p plainArguments) check(conn *pgx.Conn, sql string, args []any) {
	for len(args) > 0 {
		switch args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			args = args[1:]
			continue
		}
		break
	}
	var builder pgx.ExtendedQueryBuilder
	if err := builder.Build(conn.TypeMap(), nil, args); err != nil {
		p.Errorf("it does not run in the mode exec: %v\n%s", err, sql)
	}
}

// TestStatementsRunInEveryQueryMode runs tests that send most statements. go test ./pgstore -mode exec runs all tests
// in one mode: then those fail that are about prepared statements.
func TestStatementsRunInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, m := range queryModes {
		t.Run(m.String(), func(t *testing.T) {
			for name, test := range map[string]func(t *testing.T){
				"appends": testAppendsAndReads, "dead letters": TestDeadLetterHasTheFailureAndNoPayload,
				"leases": TestEachPartOfTheFenceCountsAlone, "nodes": TestHeartbeatOfANodeWithoutARowRegistersItAgain,
				"unknown names":  TestUnknownTenantsAndProjectionsAreNamed,
				"failures":       TestTextsInTheDatabaseHaveALimit,
				"parked streams": TestParkedStreamIsUnchangedIfTheCheckpointWasSetBack,
				"dead nodes":     TestLeasesOfDeadNodesAreFree, "desired states": TestDesiredStateIsStoredAndNotified,
				"status":     TestStatusShowsForHowLongALeaseHadNoOwner,
				"replays":    TestReplayThatIsBegunWhileItsCommandIsCancelled,
				"discarding": TestDiscardWithoutAnOwnerFencesZombies,
			} {
				t.Run(name, test)
			}
		})
	}
}

func testAppendsAndReads(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any.WithKey("k"), someEvents(3)...)
	if n := len(collect(t, store.ReadAll(testContext(t), event.ReadOptions{Types: []string{"Counted"}}))); n != 3 {
		t.Errorf("%d events", n)
	}
	timed := someEvents(3)
	timed[1].Time = time.Date(2017, time.January, 9, 8, 49, 50, 0, time.UTC)
	mustAppend(t, store.tenant, "s", event.Exact(3), timed...)
	if all := collect(t, store.ReadAll(testContext(t), event.ReadOptions{})); len(all) != 6 ||
		!all[4].Time.Equal(timed[1].Time) {
		t.Errorf("%d events: %+v", len(all), all)
	}
	for _, name := range []string{"a", "b"} { // the appends of b are not prepared everywhere
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.NoStream.WithKey("k"), someEvents(3)...)
		if _, err := tenant.Append(testContext(t), "s", event.NoStream.WithKey("other"),
			someEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
			t.Errorf("a conflict in tenant %s is %v", name, err)
		}
	}
}
