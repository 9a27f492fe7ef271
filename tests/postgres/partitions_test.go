package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
	"golang.org/x/sync/errgroup"
)

// oddStreams are ids that a hash in SQL and one in Go might take for different texts.
var oddStreams = []string{
	"", "order-1", "Ä", "日本", "e\u0301", "😀", `\`, "'", `"`, "''", `\x41`, "$1", " ", "\t\n", strings.Repeat("x", 1024),
	strings.Repeat("ü", 512),
}

// Appends of the library commit and roll back, beside those of a foreign writer, who knows nothing of slots. The
// partitions run on two nodes.
func TestPartitionsHaveTheEventsOfForeignWritersToo(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{}, "pool_max_conns", "20")
			s := kit.NewSplit(b.Bundle, "p", n)
			rt := b.Another(millrace.Config{}, s.Projection(kit.Nothing))
			b.Start(rt)
			b.Start(b.Another(millrace.Config{}, s.Projection(kit.Nothing)))
			var writers errgroup.Group
			for w := range 4 {
				writers.Go(func() error {
					for i := range 50 {
						if err := appendOrNot(b, fmt.Sprint("library ", rand.N(20))); err != nil {
							return err
						}
						// Each writer has streams of its own, so that their versions rise.
						_, err := b.store.Pool().Exec(b.Ctx,
							"insert into millrace_default.events (stream_id, stream_version, type, body) values ($1, $2, 'counted', '{}')",
							oddStreams[w+4*(i%4)], i+1)
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			b.Must(writers.Wait())
			b.Reaches(rt, "p", b.Head())
			s.Verify()
		})
	}
}

// appendOrNot appends in a transaction and, one time in three, rolls it back.
func appendOrNot(b *bundle, stream string) error {
	tx, err := b.store.Pool().Begin(b.Ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(b.Ctx) }()
	if _, err := b.store.AppendTx(b.Ctx, tx, stream, event.Any, event.Event{Type: "counted"}); err != nil {
		return err
	}
	if rand.N(3) == 0 {
		return nil
	}
	return tx.Commit(b.Ctx)
}
