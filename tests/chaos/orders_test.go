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

// What a node's process can be ordered to do, one line each on its standard input.
const (
	orderStop            = "stop"              // end in order
	orderDieInHandler    = "die-in-handler"    // be killed when a handler has written
	orderDieBeforeCommit = "die-before-commit" // be killed when the handler has returned and nothing was sent yet
	orderDieInReplay     = "die-in-replay"     // be killed like that in the replay of a parked event
	orderDieAfterCommit  = "die-after-commit"  // be killed when the server has answered, before the library knows
	orderStall           = "stall"             // let a handler that has written wait
	orderRelease         = "release"           // let it go on
	orderHold            = "hold"              // let all handlers that have written wait
	orderGo              = "go"                // let them go on
	orderMeet            = "meet "             // let a handler meet the error of the server that is named
	orderStray           = "stray "            // reach the primary, at the address that is named, no more; without one, again
	orderBreak           = "break "            // break the protection that is named, from now on
)

// orders are what a node's process was told to do at the next opportunity.
type orders struct {
	stop       context.CancelFunc
	armed      map[string]*atomic.Bool
	released   chan struct{}
	encounters *encounters
	held       atomic.Pointer[chan struct{}] // closed when handlers may go on; nil: they may
	stray      atomic.Pointer[string]        // the address that connections do not reach; nil: they reach all
	tampering  atomic.Pointer[tampering]     // what its connections are tampered with; nil: they are not
	renew      func()                        // closes the pool's connections

	mu  sync.Mutex
	out io.Writer
}

func newOrders(out io.Writer, stop context.CancelFunc) *orders {
	o := &orders{stop: stop, out: out, armed: map[string]*atomic.Bool{}, released: make(chan struct{}, 1), encounters: newEncounters()}
	for _, order := range []string{orderDieInHandler, orderDieBeforeCommit, orderDieInReplay, orderDieAfterCommit, orderStall} {
		o.armed[order] = new(atomic.Bool)
	}
	return o
}

// read takes orders until there is nobody any more to give them: a node does not outlive the tests.
func (o *orders) read(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		order := lines.Text()
		broken, breaks := strings.CutPrefix(order, orderBreak)
		code, meets := strings.CutPrefix(order, orderMeet)
		address, strays := strings.CutPrefix(order, orderStray)
		switch {
		case meets:
			o.encounters.next.Store(&code)
		case strays && address == "":
			o.stray.Store(nil)
		case strays:
			o.stray.Store(&address)
		case breaks:
			t := tamperings[protection(broken)]
			o.tampering.Store(&t)
			o.renew() // statements that were prepared before are sent anew
			o.tell("broken %s", broken)
		case order == orderHold:
			held := make(chan struct{})
			o.held.CompareAndSwap(nil, &held)
		case order == orderGo:
			if held := o.held.Swap(nil); held != nil {
				close(*held)
			}
		case order == orderStop:
			o.stop()
		case order == orderRelease:
			select {
			case o.released <- struct{}{}:
			default: // nobody took the last one
			}
		default:
			o.armed[order].Store(true)
			o.tell("ordered to %s", order)
		}
	}
	os.Exit(3)
}

func (o *orders) tell(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.out, format+"\n", args...)
}

func (o *orders) take(order string) bool { return o.armed[order].CompareAndSwap(true, false) }

// whileHeld lets a handler wait that was ordered to, but not until its deadline.
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

// afterWriting is called by every handler when it has written.
func (o *orders) afterWriting(ctx context.Context, who fmt.Stringer) {
	if o.take(orderDieInHandler) {
		dieAtOnce()
	}
	o.whileHeld(ctx)
	if o.take(orderStall) {
		o.tell("stalled %s", who)
		select {
		case <-o.released:
		case <-ctx.Done():
		}
		o.tell("released %s", who)
	}
}

// inReplay is called by a handler that parks, when it has written: in a replay, the commit that comes next is this one's.
func (o *orders) inReplay(ctx context.Context, tx pgx.Tx, id projection.ID, events []event.Envelope) error {
	if len(events) != 1 || !o.armed[orderDieInReplay].Load() {
		return nil
	}
	var replayed bool
	err := tx.QueryRow(ctx, `select exists (select from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where p.tenant = $1 and p.name = $2 and d.position = $3 and d.state = 'replaying')`, id.Tenant, id.Name, events[0].Position).Scan(&replayed)
	if err == nil && replayed && o.take(orderDieInReplay) {
		o.armed[orderDieBeforeCommit].Store(true)
	}
	return err
}

// dieAtOnce is kill -9.
func dieAtOnce() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// watchCommits looks at what goes over the pool's connections, for the moments at which a batch commits.
func watchCommits(config *pgxpool.Config, o *orders) {
	var dial pgconn.DialFunc = (&net.Dialer{}).DialContext
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if away := o.stray.Load(); away != nil && *away == addr {
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, orders: o}, nil
	}
	// A node that is astray has a pool that does not ask which server is the primary.
	if valid := config.ConnConfig.ValidateConnect; valid != nil {
		config.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			if o.stray.Load() != nil {
				o.tell("astray")
				return nil
			}
			return valid(ctx, conn)
		}
	}
}

type watchedConn struct {
	net.Conn
	orders *orders
	doomed atomic.Bool
	met    atomic.Bool // it was tampered with
}

func (c *watchedConn) Write(message []byte) (int, error) {
	if bytes.Contains(message, []byte(".advance(")) && bytes.Contains(message, []byte("commit")) {
		if c.orders.take(orderDieBeforeCommit) {
			dieAtOnce()
		}
		if c.orders.take(orderDieAfterCommit) {
			c.doomed.Store(true)
		}
	}
	return c.Conn.Write(c.tampered(message, false))
}

func (c *watchedConn) Read(message []byte) (int, error) {
	n, err := c.Conn.Read(message)
	if n > 0 && c.doomed.Load() {
		dieAtOnce()
	}
	copy(message, c.tampered(message[:n], true))
	return n, err
}
