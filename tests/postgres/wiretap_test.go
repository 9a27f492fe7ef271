package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wiretap records the statements that the connections of a pool send, and those of session connections, which are
// opened with the same configuration. It reads the protocol, because a pgx tracer does not see what goes through
// pgconn: batches of projections, and reads of events.
type wiretap struct {
	mu    sync.Mutex
	trips []roundTrip
}

// roundTrip is what a connection sends until the server has to answer. A statement that is prepared under a name is not
// part of it, since that happens once in each connection.
type roundTrip []sentText

// sentText is a message of the simple protocol, which may have several statements, or one statement that is executed
// or, if described is set, only described.
type sentText struct {
	sql               string
	simple, described bool
}

// tap sets up a pool, whose DSN must have sslmode=disable.
func (w *wiretap) tap(config *pgxpool.Config) {
	dialing(func(conn net.Conn) net.Conn {
		return &tappedConn{
			Conn: conn, tap: w, starting: true, prepared: make(map[string]string), portals: make(map[string]string),
		}
	})(config)
	// The ping depends on how long a connection was idle.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
}

// forget forgets what was sent.
func (w *wiretap) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trips = nil
}

// sent returns what was sent since forget.
func (w *wiretap) sent() []roundTrip {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trips[:len(w.trips):len(w.trips)]
}

// tappedConn is one connection.
type tappedConn struct {
	net.Conn
	tap      *wiretap
	starting bool // the startup message, which has no type, was not sent yet
	rest     []byte

	prepared, portals map[string]string
	current           roundTrip
}

func (c *tappedConn) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for c.message() {
	}
	return c.Conn.Write(p)
}

// message reads one message. It returns false if the message is not complete yet.
func (c *tappedConn) message() bool {
	kind := 1
	if c.starting {
		kind = 0
	}
	if len(c.rest) < kind+4 {
		return false
	}
	end := kind + int(binary.BigEndian.Uint32(c.rest[kind:]))
	if len(c.rest) < end {
		return false
	}
	if !c.starting {
		c.read(c.rest[0], c.rest[kind+4:end])
	}
	c.starting, c.rest = false, c.rest[end:]
	return true
}

func (c *tappedConn) read(kind byte, body []byte) {
	switch kind {
	case 'Q':
		sql, _ := text(body)
		c.current = append(c.current, sentText{sql: sql, simple: true})
		c.answered()
	case 'P':
		name, rest := text(body)
		sql, _ := text(rest)
		c.prepared[name] = sql
		if name == "" {
			c.current = append(c.current, sentText{sql: sql, described: true})
		}
	case 'B':
		portal, rest := text(body)
		name, _ := text(rest)
		c.portals[portal] = c.prepared[name]
	case 'E':
		portal, _ := text(body)
		if last := len(c.current) - 1; last >= 0 && c.current[last].described &&
			c.current[last].sql == c.portals[portal] {
			c.current = c.current[:last] // it is described and executed
		}
		c.current = append(c.current, sentText{sql: c.portals[portal]})
	case 'S':
		c.answered()
	}
}

// answered ends a round trip.
func (c *tappedConn) answered() {
	if len(c.current) == 0 {
		return
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.trips = append(c.tap.trips, c.current)
	c.current = nil
}

// text reads a text of the protocol, and returns what follows it.
func text(body []byte) (string, []byte) {
	before, after, _ := bytes.Cut(body, []byte{0})
	return string(before), after
}
