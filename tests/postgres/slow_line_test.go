package postgres_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// narrow is a connection on which a number of bytes arrive in a second.
type narrow struct {
	net.Conn
	rate int
}

func (c *narrow) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), c.rate/100)])
	<-time.After(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// All events that wait take much longer over the line than a read may last, and each takes less. What arrived is
// applied, both when a projection catches up and when it is live.
func TestLargeEventsArriveOverASlowLine(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	const events, size, rate = 12, 400_000, 2_000_000
	large := []event.Event{{Type: "counted", Body: []byte(`"` + strings.Repeat("x", size) + `"`)}}
	appendAll := func(stream string) {
		for range events {
			if _, err := b.Store.Append(b.Ctx, stream, event.Any, large...); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendAll("before")
	// a read takes at most three times as long
	config := kit.Tuned(kit.Quick, func(s *tuning.Settings) { s.Query = 500 * time.Millisecond })
	config = kit.On(config, b.open(b.dsn, dialing(func(conn net.Conn) net.Conn { return &narrow{conn, rate} }),
		pgstore.Options{SessionDSN: b.dsn}))
	rt := b.Running(config, b.Recorders("p")...)
	b.Reaches(rt, "p", events)
	appendAll("live")
	b.Reaches(rt, "p", 2*events)
	b.Verify("p")
}
