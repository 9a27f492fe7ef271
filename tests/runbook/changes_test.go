package runbook_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

var _ = add(map[string]func(s *scenario){
	"rows-of-a-read-model-are-wrong":           wrongRows,
	"a-rebuild-does-not-proceed":               stuckRebuild,
	"a-swap-is-refused":                        refusedSwap,
	"a-release-was-rolled-back-after-a-swap":   rolledBack,
	"a-release-was-rolled-back-after-a-rename": renamedBack,
	"an-archive-or-a-drop-of-a-tenant-waits":   waitingArchive,
	"a-drop-of-a-tenant-was-interrupted":       interruptedDrop,
	"appends-to-a-tenant-are-refused":          archivedTenant,
})

func wrongRows(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"),
		totals(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error { return count(ctx, tx, e) }))
	s.append("", "OrderPlaced", "OrderPaid", "OrderSent")
	s.reaches("", 3)
	s.follow()
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
	s.follow()
}

// requestRebuild requests a rebuild, and does not wait for it.
func (s *scenario) requestRebuild() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	if err := s.admin().Rebuild(ctx, millrace.ProjectionID{Name: "totals"}, admin.ResetOptions{}); !errors.Is(err,
		projection.ErrOperationPending) {
		s.Fatalf("the rebuild does not wait: %v", err)
	}
}

func stuckRebuild(s *scenario) {
	s.database()
	p := totals(nil)
	p.Timeout = 2 * time.Second // half of it is the limit of the wait for a lock
	p.Reset = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "truncate public.totals")
		return err
	})
	s.node(kit.On(soon("shop-1"), s.opened(s.dsn, pgstore.Options{HookDSN: s.ownerDSN})), p)
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	open := s.connection()
	_, err := open.Exec(s.ctx, "set application_name = 'report'; begin; select * from totals",
		pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.requestRebuild()
	s.follow()
	s.follow()
	s.follow()
	s.follow()

	// Another rebuild waits for a node.
	_, err = s.connection().Exec(s.ctx, "begin; select * from totals", pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.requestRebuild()
	s.follow()
}

// second is version 2 of totals.
func second(before handleFunc) millrace.Projection {
	p := totals(before)
	p.Version, p.Reset = 2, nil
	p.Handler = pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if before != nil {
			return before(ctx, tx, e)
		}
		return nil
	})
	return p
}

func refusedSwap(s *scenario) {
	s.database()
	s.append("", "OrderPlaced", "OrderRefused")
	stop := s.node(soon("shop-1"), totals(nil), second(refusing))
	s.reachesAs(millrace.ProjectionID{Name: "totals@2"}, 2)
	s.follow()
	stop()
	s.node(soon("shop-1"), totals(nil), second(nil))
	s.follow()
}

func rolledBack(s *scenario) {
	s.database()
	s.append("", "OrderPlaced")
	stop := s.node(soon("shop-1"), totals(nil), second(nil))
	s.reachesAs(millrace.ProjectionID{Name: "totals@2"}, 1)
	s.must(s.admin().Swap(s.ctx, millrace.ProjectionID{Name: "totals@2"}, admin.SwapOptions{}))
	stop()
	stop = s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPaid")
	s.follow()
	stop()
	s.node(soon("shop-2"), second(nil))
}

func renamedBack(s *scenario) {
	s.database()
	s.append("", "OrderPlaced")
	stop := s.node(soon("shop-1"), totals(nil))
	s.reaches("", 1)
	stop()
	renamed := totals(nil)
	renamed.Name, renamed.RenamedFrom = "sums", "totals"
	stop = s.node(soon("shop-1"), renamed)
	s.reachesAs(millrace.ProjectionID{Name: "sums"}, 1)
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPaid")
	s.follow()
	s.follow()
}

func waitingArchive(s *scenario) {
	s.database()
	_, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	s.node(soon("shop-1"), totals(nil))
	open := s.connection()
	_, err = open.Exec(s.ctx,
		"set application_name = 'import'; begin; insert into millrace_acme.events (stream_id, stream_version, type, body, headers) values ('order-4', 1, 'OrderPlaced', '{}', '{}')", pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.follow()
	s.follow()
	s.follow()
}

func interruptedDrop(s *scenario) {
	s.database()
	_, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	s.sql("update millrace.tenants set state = 'dropping' where tenant = 'acme'")
	s.follow()
	s.follow()
}

func archivedTenant(s *scenario) {
	s.database()
	_, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	s.node(soon("shop-1"), totals(nil))
	s.append("acme", "OrderPlaced")
	s.reaches("acme", 1)
	s.must(s.owner.ArchiveTenant(s.ctx, "acme"))
	s.follow()
	s.follow()
}
