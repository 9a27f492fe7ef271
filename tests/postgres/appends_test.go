package postgres_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// openAppend appends in a transaction that stays open.
func (b *bundle) openAppend(stream string) (tx pgx.Tx, position int64) {
	b.T.Helper()
	tx, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	b.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.Ctx)) })
	result, err := b.store.AppendTx(b.Ctx, tx, stream, event.Any, event.Event{Type: "counted"})
	b.Must(err)
	return tx, result.Positions[0]
}

func TestProjectionWaitsForAnOpenAppendAndKeepsOrder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx,
		context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{})
			rt := b.Running(millrace.Config{}, b.Recorders("p")...)
			tenantUntil := func(what string, done func(s admin.TenantStatus) bool) (s admin.TenantStatus) {
				b.Eventually(what, func() bool { s = b.StatusOf(rt).Tenants[0]; return done(s) })
				return s
			}
			isHeld := func(s admin.TenantStatus) bool { return s.Held != nil }
			first := b.Append("a", 1).Positions[0]
			b.Reaches(rt, "p", first)
			open, gap := b.openAppend("open")
			last := b.Append("a", 1).Positions[0]
			b.Append("b", 1)
			want := []string{fmt.Sprintf("backend %d", open.Conn().PgConn().PID())}
			s := tenantUntil("the mark is held", isHeld)
			if s.Mark != gap-1 || s.Head < last || s.Held.Below < last || !slices.Equal(s.Held.Holders, want) {
				t.Errorf("mark %d, head %d, held %+v, want one below %d by %v", s.Mark, s.Head, *s.Held, gap, want)
			}
			last = b.Append("c", 1).Positions[0]
			// The mark stays held, however often the status is read.
			since := s.Held.Since
			for range 20 {
				s = tenantUntil("the mark is held still", isHeld)
			}
			if got := b.Positions("p"); !slices.Equal(got, []int64{first}) || !s.Held.Since.Equal(since) {
				t.Errorf("applied %v beyond the open append %d; held since %v, and before since %v", got, gap,
					s.Held.Since, since)
			}
			b.Must(end(open, b.Ctx))
			b.Applied(rt, last, "p")
			if slices.Contains(b.Positions("p"), gap) != (name == "commit") {
				t.Errorf("applied %v; the open append was %d", b.Positions("p"), gap)
			}
			tenantUntil("the mark is free",
				func(s admin.TenantStatus) bool { return s.Held == nil && s.Mark == s.Head })
		})
	}
}

// Appends overlap in every way, and some of them are rolled back. The projection gets rising positions.
func TestProjectionGetsOverlappingAppendsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "10")
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	var open []pgx.Tx
	for i := range 60 {
		tx, _ := b.openAppend(fmt.Sprint("open", i))
		open = append(open, tx)
		if len(open) < 4 {
			continue
		}
		// The one in the middle ends first.
		ends := open[len(open)/2]
		open = slices.Delete(open, len(open)/2, len(open)/2+1)
		if i%5 == 0 {
			b.Must(ends.Rollback(b.Ctx))
		} else {
			b.Must(ends.Commit(b.Ctx))
		}
	}
	for _, tx := range open {
		b.Must(tx.Commit(b.Ctx))
	}
	b.Applied(rt, b.Append("end", 1).Positions[0], "p")
}

// foreignSQL is the SQL of docs/guide.md for writers of events that do not use the library.
type foreignSQL struct{ insert, notify, trigger string }

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// notifying is the insert with the notification where the guide puts it, before the commit.
func (s foreignSQL) notifying(t *testing.T) string {
	t.Helper()
	before, found := strings.CutSuffix(s.insert, "commit;\n")
	if !found {
		t.Fatalf("the insert does not end with its commit:\n%s", s.insert)
	}
	return before + s.notify + "commit;\n"
}

// arrives returns an error if the projection does not reach the last event in time.
func (b *bundle) arrives(rt *millrace.Runtime, within time.Duration) error {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, within)
	defer cancel()
	return rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, b.Head())
}

func TestForeignWriterWakesByTheDocumentedSQL(t *testing.T) {
	t.Parallel()
	sql := documentedSQL(t)
	for name, ways := range map[string]struct{ setUp, insert string }{
		"notification in the transaction": {"select", sql.notifying(t)},
		"trigger":                         {sql.trigger, sql.insert},
	} {
		t.Run(name, func(t *testing.T) {
			onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
				rt := b.Running(millrace.Config{PollInterval: never}, b.Recorders("p")...)
				b.mustArrive(rt, b.store)
				b.exec(sql.insert)
				if err := b.arrives(rt, 500*time.Millisecond); err == nil {
					t.Fatal("the control arrived without a notification")
				}
				_, err := owner.Pool().Exec(b.Ctx, ways.setUp)
				b.Must(err)
				for range 3 {
					b.exec(ways.insert)
					b.Must(b.arrives(rt, 20*time.Second))
				}
				b.Verify("p")
			})
		})
	}
}

func TestForeignWriterFitsInWithAppends(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		sql := documentedSQL(t)
		rt := b.Running(millrace.Config{PollInterval: 50 * time.Millisecond}, b.Recorders("p")...)
		const stream = "order-7" // as in the guide
		const writers, rounds = 4, 10
		done := make(chan error, 2*writers)
		for range writers {
			go func() {
				var err error
				for i := 0; i < rounds && err == nil; i++ {
					_, err = b.store.Pool().Exec(b.Ctx, sql.insert)
				}
				done <- err
			}()
			go func() {
				var err error
				for i := 0; i < rounds && err == nil; i++ {
					_, err = b.store.Append(b.Ctx, stream, event.Any, event.Event{Type: "ItemAdded"})
				}
				done <- err
			}()
		}
		for range 2 * writers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// The foreign events count for the version: an append that expects it succeeds.
		const all = 3 * writers * rounds
		if _, err := b.store.Append(b.Ctx, stream, event.Exact(all), event.Event{Type: "OrderClosed"}); err != nil {
			t.Fatal(err)
		}
		b.Must(b.arrives(rt, 20*time.Second))
		b.Verify("p")
		version := int64(0)
		last := int64(0)
		for e, err := range b.store.ReadStream(b.Ctx, stream, 1) {
			b.Must(err)
			version++
			if e.Version != version || e.Position <= last {
				t.Fatalf("version %d at %d follows version %d at %d", e.Version, e.Position, version-1, last)
			}
			last = e.Position
		}
		if version != all+1 {
			t.Errorf("%d events, want %d", version, all+1)
		}
	})
}

// sqlOf returns the SQL blocks of a section of a document.
func sqlOf(t *testing.T, document, heading string, want int) (blocks []string) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, match := range sqlBlock.FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, match[1])
	}
	if len(blocks) != want {
		t.Fatalf("%d SQL blocks under %q, want %d", len(blocks), heading, want)
	}
	return blocks
}

// documentedSQL returns what inserts, notifies, and makes the trigger.
func documentedSQL(t *testing.T) foreignSQL {
	t.Helper()
	blocks := sqlOf(t, "guide.md", "### Foreign writers", 3)
	return foreignSQL{blocks[0], blocks[1], blocks[2]}
}
