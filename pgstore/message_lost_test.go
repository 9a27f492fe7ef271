package pgstore

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// deafConn reads nothing more once it is lost. What is written still arrives.
type deafConn struct {
	net.Conn
	lost *atomic.Bool
}

func (c deafConn) Read(p []byte) (int, error) {
	if c.lost.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// TestLostAnswerToAMessageIsNotSaidToBeUnsent checks the error of a message that the server may have carried out, for
// each of the two ways in which messages are sent.
func TestLostAnswerToAMessageIsNotSaidToBeUnsent(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"its statement is new": 0, "its statement is prepared": 1} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			config := must(pgx.ParseConfig(pgtest.Database(t)))(t)
			var lost atomic.Bool
			dial := config.DialFunc
			config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return deafConn{conn, &lost}, err
			}
			conn := must(pgx.ConnectConfig(ctx, config))(t)
			defer func() { _ = conn.Close(ctx) }()
			kept := &prepared{known: make(map[statementKey]*preparedStatement), paths: make(map[string]int), places: 1}
			message := func() (int, error) {
				return send(ctx, conn.PgConn(), kept, []command{{part: handlerPart, sql: "select 1"}})
			}
			for range before {
				must(message())(t)
			}
			lost.Store(true)
			_, err := message()
			if err == nil || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) ||
				!pgerr.FromConnection(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}
