package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// The orders that a node's process takes, one on each line of its standard input. Some have an argument.
const (
	orderStop         = "stop"           // end in order
	orderDieInHandler = "die-in-handler" // kill the process when a handler has written
	// kill the process when the handler has returned and the commit is not sent yet
	orderDieBeforeCommit = "die-before-commit"
	orderDieInReplay     = "die-in-replay" // the same in the replay of a parked event
	// kill the process when the server has answered, before the library sees the answer
	orderDieAfterCommit = "die-after-commit"
	orderStall          = "stall"   // block the next handler that has written
	orderRelease        = "release" // unblock it
	orderHold           = "hold"    // block all handlers that have written
	orderGo             = "go"      // unblock them
	orderFail           = "fail"    // SQLSTATE: let a statement of a handler fail with it
	// address: do not connect to this server, but to a standby; empty: connect to all
	orderAvoid = "avoid"
	orderBreak = "break" // protection: break it from now on
)

// orders are the orders that a node's process still has to carry out.
type orders struct {
	stop             context.CancelFunc
	closeConnections func()                        // of the pool
	released         chan struct{}                 // receives when a stalled handler may continue
	held             atomic.Pointer[chan struct{}] // closed when handlers may continue; nil: they may
	avoided          atomic.Pointer[string]
	tampering        atomic.Pointer[tampering] // nil: none

	mu         sync.Mutex
	out        io.Writer
	armed      map[string]bool
	failWith   string // the SQLSTATE of the next failure
	failedUpTo map[projection.ID]int64
}

func newOrders(out io.Writer, stop context.CancelFunc) *orders {
	o := &orders{
		stop: stop, out: out, armed: make(map[string]bool), released: make(chan struct{}, 1),
		failedUpTo: make(map[projection.ID]int64),
	}
	o.avoided.Store(new(string))
	return o
}

// read takes orders until its input ends with the test process. The node must not survive that.
func (o *orders) read(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		order, argument, _ := strings.Cut(lines.Text(), " ")
		switch order {
		case orderStop:
			o.stop()
		case orderRelease:
			select {
			case o.released <- struct{}{}:
			default: // the last one was not received
			}
		case orderHold:
			held := make(chan struct{})
			o.held.CompareAndSwap(nil, &held)
		case orderGo:
			if held := o.held.Swap(nil); held != nil {
				close(*held)
			}
		case orderFail:
			o.mu.Lock()
			o.failWith = argument
			o.mu.Unlock()
		case orderAvoid:
			o.avoided.Store(&argument)
		case orderBreak:
			t := tamperings[protection(argument)]
			o.tampering.Store(&t)
			o.closeConnections() // prepared statements are sent again
			o.report("broken %s", argument)
		default:
			o.arm(order)
			o.report("ordered to %s", order)
		}
	}
	os.Exit(3)
}

func (o *orders) report(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.out, format+"\n", args...)
}

func (o *orders) arm(order string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed[order] = true
}

// take reports whether an order was given, and removes it.
func (o *orders) take(order string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	armed := o.armed[order]
	delete(o.armed, order)
	return armed
}

// whileHeld blocks a handler after orderHold, but not until its deadline.
func (o *orders) whileHeld(ctx context.Context) {
	held := o.held.Load()
	if held == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
		defer cancel()
	}
	select {
	case <-*held:
	case <-ctx.Done():
	}
}

// afterWriting is called by every batch handler when it has written.
func (o *orders) afterWriting(ctx context.Context, id projection.ID) {
	if o.take(orderDieInHandler) {
		killSelf()
	}
	o.whileHeld(ctx)
	if o.take(orderStall) {
		o.report("stalled %s", id)
		select {
		case <-o.released:
		case <-ctx.Done():
		}
		o.report("released %s", id)
	}
}

// inReplay is called by the handler of shipments when it has written. If the event is being replayed, the next commit
// is that of the replay.
func (o *orders) inReplay(ctx context.Context, tx pgx.Tx, id projection.ID, events []event.Envelope) error {
	if len(events) != 1 || !o.take(orderDieInReplay) {
		return nil
	}
	var replayed bool
	err := tx.QueryRow(ctx,
		`select exists (select from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where p.tenant = $1 and p.name = $2 and d.position = $3 and d.state = 'replaying')`, id.Tenant, id.Name, events[0].Position).Scan(&replayed)
	if replayed {
		o.arm(orderDieBeforeCommit)
	} else {
		o.arm(orderDieInReplay)
	}
	return err
}

// killSelf kills the process with SIGKILL.
func killSelf() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// watchCommits wraps the pool's connections, to act at the moment at which a batch commits.
func watchCommits(config *pgxpool.Config, o *orders) {
	var dial pgconn.DialFunc = (&net.Dialer{}).DialContext
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == *o.avoided.Load() {
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, orders: o}, nil
	}
	// While a node avoids the primary, its pool accepts any server.
	if valid := config.ConnConfig.ValidateConnect; valid != nil {
		config.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			if *o.avoided.Load() != "" {
				o.report("any server")
				return nil
			}
			return valid(ctx, conn)
		}
	}
}

// watchedConn is a connection of a node's pool.
type watchedConn struct {
	net.Conn
	orders   *orders
	doomed   atomic.Bool // the process dies when the server answers
	tampered atomic.Bool
}

func (c *watchedConn) Write(message []byte) (int, error) {
	if bytes.Contains(message, []byte(".advance(")) && bytes.Contains(message, []byte("commit")) {
		if c.orders.take(orderDieBeforeCommit) {
			killSelf()
		}
		if c.orders.take(orderDieAfterCommit) {
			c.doomed.Store(true)
		}
	}
	return c.Conn.Write(c.tamper(message, false))
}

func (c *watchedConn) Read(message []byte) (int, error) {
	n, err := c.Conn.Read(message)
	if n > 0 && c.doomed.Load() {
		killSelf()
	}
	copy(message, c.tamper(message[:n], true))
	return n, err
}
