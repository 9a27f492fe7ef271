package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// splitter is the program of docs/partitions.md, which shows its methods.
type splitter struct{ rt *millrace.Runtime }

func (s *splitter) tooSlow(ctx context.Context) error {
	return s.rt.Repartition(ctx, millrace.ProjectionID{Name: "counts"}, 8)
}

func (s *splitter) hot(ctx context.Context, tenant string) error {
	return s.rt.Repartition(ctx, millrace.ProjectionID{Tenant: tenant, Name: "counts"}, 16)
}

func (s *splitter) fewer(ctx context.Context, tenant string) error {
	id := millrace.ProjectionID{Tenant: tenant, Name: "mails"}
	if err := s.rt.Pause(ctx, id); err != nil {
		return err
	}
	return errors.Join(s.rt.Repartition(ctx, id, 1), s.rt.Resume(ctx, id))
}

func partitionsDocument(t *testing.T) string {
	t.Helper()
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "partitions.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// blocksOf returns the blocks of code in a language.
func blocksOf(document, language string) (blocks []string) {
	for _, block := range strings.Split(document, "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, code)
	}
	return blocks
}

// The published slots are those of Go and of the server, and the published statement finds the partition.
func TestPublishedSlotsAreThoseOfTheServer(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		b.Idle(millrace.Projection{Name: "counts", Partitions: 4, Handler: b.Store.Batch(kit.Nothing)})
		document := partitionsDocument(t)
		statements := blocksOf(document, "sql")
		rows := regexp.MustCompile("(?m)^\\| `(.*)` \\| `([0-9a-f]{7})` \\| (\\d+) \\| (\\d) \\|$").FindAllStringSubmatch(document, -1)
		if len(rows) != 5 || len(statements) != 1 {
			t.Fatalf("%d published slots, %d statements", len(rows), len(statements))
		}
		for _, row := range rows {
			hex, _ := strconv.ParseInt(row[2], 16, 32)
			slot, _ := strconv.Atoi(row[3])
			number, _ := strconv.Atoi(row[4])
			if got := partition.Slot(row[1]); int(got) != slot || int64(got) != hex || partition.Of(got, 4) != number {
				t.Errorf("the published slot of %q is %d (%x), in partition %d of 4; in Go it is %d, in %d", row[1],
					slot, hex, number, got, partition.Of(got, 4))
			}
			var atServer, slotAtServer int
			statement := strings.Replace(statements[0], "'order-1'", "'"+row[1]+"'", 1)
			b.Must(b.store.Pool().QueryRow(b.Ctx, statement).Scan(&atServer, &slotAtServer))
			if atServer != number || slotAtServer != slot {
				t.Errorf("%q: the server finds slot %d in partition %d", row[1], slotAtServer, atServer)
			}
		}
	})
}

// most counts how many handlers run at once, for each tenant.
type most struct {
	mu           sync.Mutex
	now, highest map[string]int
}

func (m *most) enter(tenant string) (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[tenant]++
	m.highest[tenant] = max(m.highest[tenant], m.now[tenant])
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now[tenant]--
	}
}

func (m *most) atOnce(tenant string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.highest[tenant]
}

// The tasks "One projection is too slow" and "One tenant is hot".
func TestMorePartitionsHandleMoreEventsAtOnce(t *testing.T) {
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		b.use(b.open(kit.WithSetting(t, b.dsn, "pool_max_conns", "20"), nil, pgstore.Options{}))
		b.Must(owner.CreateTenants(b.Ctx, "hot", "cold"))
		hot, err := b.Store.CreateTenant(b.Ctx, "hot")
		b.Must(err)
		cold, err := b.Store.CreateTenant(b.Ctx, "cold")
		b.Must(err)
		counter := &most{now: make(map[string]int), highest: make(map[string]int)}
		waits := b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			tenant, _, _ := strings.Cut(e.Stream, "-")
			defer counter.enter(tenant)()
			kit.Pass(ctx, 5*time.Millisecond)
			return nil
		})
		s := &splitter{b.Running(millrace.Config{}, millrace.Projection{Name: "counts", Handler: waits})}
		head := int64(0)
		fill := func() {
			head += 4 * 32
			for i := range 32 {
				b.Append(fmt.Sprint("default-", i), 4)
				b.AppendTo(hot, fmt.Sprint("hot-", i), 4)
				b.AppendTo(cold, fmt.Sprint("cold-", i), 4)
			}
			for _, tenant := range []string{"default", "hot", "cold"} {
				b.ReachesOf(s.rt, tenant, "counts", head)
			}
		}
		fill()
		for _, tenant := range []string{"default", "hot", "cold"} {
			if n := counter.atOnce(tenant); n != 1 {
				t.Errorf("%s: %d handlers at once", tenant, n)
			}
		}
		b.Must(s.tooSlow(b.Ctx))
		b.Must(s.hot(b.Ctx, "hot"))
		for round := 0; counter.atOnce("default") < 2 || counter.atOnce("hot") < 2; round++ {
			if round == 50 {
				t.Fatalf("%+v handlers at once", counter.highest)
			}
			fill()
		}
		if n := counter.atOnce("cold"); n != 1 {
			t.Errorf("%d handlers of the other tenant at once", n)
		}
	})
}

// The task "Fewer again".
func TestFewerPartitionsSendNothingTwice(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		receiver := &kit.Receiver{}
		var sent atomic.Int64
		mails := millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
			sent.Add(1)
			kit.Pass(ctx, 2*time.Millisecond)
			receiver.Take(e.Position, e.Token)
			return nil
		})
		s := &splitter{b.Running(millrace.Config{}, millrace.Projection{Name: "mails", Partitions: 8, Handler: mails})}
		stop := b.Flow()
		b.Eventually("mails are sent", func() bool { return sent.Load() > 20 })
		b.Must(s.fewer(b.Ctx, "default"))
		last := stop()
		b.Reaches(s.rt, "mails", last)
		var positions []int64
		for _, a := range receiver.All() {
			positions = append(positions, a.Position)
		}
		slices.Sort(positions)
		if int64(len(positions)) != last || len(slices.Compact(positions)) != int(last) ||
			value[int](b, "select count(*) from millrace.projections") != 1 {
			t.Errorf("%d mails for %d events", len(positions), last)
		}
	})
}
