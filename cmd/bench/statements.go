package main

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statementCount counts the statements that connections send: the messages Query and Execute of PostgreSQL's protocol.
// A tracer of the driver does not see all of them. A message with several statements counts once.
type statementCount struct{ n atomic.Int64 }

// of makes a pool count its statements.
func (c *statementCount) of(config *pgxpool.Config) {
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return &countedConn{Conn: conn, count: c}, nil
	}
}

// countedConn is a connection whose messages are counted.
type countedConn struct {
	net.Conn
	count *statementCount
	// header is the beginning of the next message, as far as it was written. rest is how many bytes are left of the
	// message that is being written.
	header []byte
	rest   int
	// began reports that the first message, which has no type, was written.
	began bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	for left := b; len(left) > 0; {
		if c.rest > 0 {
			n := min(c.rest, len(left))
			c.rest, left = c.rest-n, left[n:]
			continue
		}
		c.header, left = append(c.header, left[0]), left[1:]
		length := c.header
		if c.began {
			length = c.header[1:]
		}
		if len(length) < 4 {
			continue
		}
		if c.began && (c.header[0] == 'Q' || c.header[0] == 'E') {
			c.count.n.Add(1)
		}
		c.rest = int(binary.BigEndian.Uint32(length)) - 4
		c.header, c.began = c.header[:0], true
	}
	return c.Conn.Write(b)
}
