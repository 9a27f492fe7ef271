package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// meetings are statements that the server answers with an error that says nothing about the server, by its SQLSTATE.
var meetings = map[string][]string{
	"XX000": {"select pg_catalog.pg_describe_object(999999, 1, 0)"},
	"53400": {"set local work_mem = '64kB'", "select count(*) from generate_series(1, 200000)"},
	"57014": {"set local statement_timeout = '5ms'", "select pg_catalog.pg_sleep(10)"},
}

// temporaryFiles is how much a session may write to temporary files, for the error 53400.
const temporaryFiles = "alter database %s set temp_file_limit = '1MB'"

var handlerFaults = []fault{
	handlersMeet("XX000", "an extension refuses its input"),
	handlersMeet("53400", "a statement exceeds temp_file_limit"),
	handlersMeet("57014", "a statement exceeds the handler's own time-out"),
	{
		name:    "an operator cancels statements of handlers",
		expects: "they are made again; nothing is parked, and everything goes on",
		reach:   reachData, weight: 2, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: (*strike).cancelStatements,
		proves: (*strike).progress,
	},
	{
		name:    "a stranger locks a tenant's events",
		expects: "the other tenants go on",
		reach:   reachData, weight: 2, least: time.Second, most: 4 * time.Second, alone: 5 * time.Second,
		strike: (*strike).lockTenant,
		proves: (*strike).progress,
	},
}

// handlersMeet lets handlers of a node meet an error of the server, again and again, each event once at the most.
func handlersMeet(code, how string) fault {
	return fault{
		name:    fmt.Sprintf("handlers meet %s: %s", code, how),
		expects: "the batch is made again; nothing is parked, and everything goes on",
		weight:  2, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			if s.victim == nil {
				return nil
			}
			for end := time.Now().Add(s.lasts); time.Now().Before(end) && s.ctx.Err() == nil; {
				if err := s.victim.order(orderMeet + code); err != nil {
					return s.unlessAlone(err)
				}
				s.wait(time.Duration(20+s.rnd.IntN(150)) * time.Millisecond)
			}
			return nil
		},
		proves: func(s *strike) error {
			if s.victim.tells("met "+code) == 0 {
				return fmt.Errorf("no handler met %s", code)
			}
			return s.progress()
		},
	}
}

// encounters are the errors that handlers of a node's process are to meet.
type encounters struct {
	next    atomic.Pointer[string]              // the SQLSTATE of the next
	highest map[string]map[string]*atomic.Int64 // by projection and tenant: the last event that met one
}

func newEncounters() *encounters {
	e := &encounters{highest: make(map[string]map[string]*atomic.Int64)}
	for name := range concerns {
		e.highest[name] = make(map[string]*atomic.Int64)
		for _, tenant := range tenants {
			e.highest[name][tenant] = new(atomic.Int64)
		}
	}
	return e
}

// meets makes the server refuse a statement of the handler's where that was ordered. Events that met an error before do
// not meet another one, because the same event that fails again and again is at fault.
func (o *orders) meets(ctx context.Context, tx pgx.Tx, id projection.ID, events []event.Envelope) error {
	code, highest := o.encounters.next.Load(), o.encounters.highest[id.Name][id.Tenant]
	if code == nil || events[0].Position <= highest.Load() || !o.encounters.next.CompareAndSwap(code, nil) {
		return nil
	}
	highest.Store(events[len(events)-1].Position)
	for _, sql := range meetings[*code] {
		if _, err := tx.Exec(ctx, sql); err != nil {
			o.tell("met %s: %v", *code, err)
			return err
		}
	}
	return fmt.Errorf("nothing failed that should with %s", *code)
}

// cancelStatements cancels statements of handlers, as an operator does who looks for long ones. It is rare enough that
// no event is met several times in a row, because then the event is at fault. Statements of audit are spared, which parks
// what fails once, and those that wait for a lock, which would be met until the lock is gone.
func (s *strike) cancelStatements() error {
	canceled := int64(0)
	for end := time.Now().Add(s.lasts); time.Now().Before(end) || s.alone && canceled == 0; {
		found, err := rows(s.cluster, scanNumber, `select count(*) filter (where pg_cancel_backend(pid)) from (select pid from pg_stat_activity
			where datname = current_database() and usename like $1 and state <> 'idle' and wait_event_type is distinct from 'Lock'
			and query ~ '^/[*] (ledger|search|shipments) [*]/' order by random() limit 1) victims`, appsPrefix)
		if err != nil || s.ctx.Err() != nil {
			return s.unlessAlone(err)
		}
		if canceled += found[0]; found[0] > 0 {
			s.wait(200 * time.Millisecond)
		}
		s.wait(time.Duration(s.rnd.IntN(40)) * time.Millisecond)
	}
	return nil
}

// lockTenant rewrites a tenant's events and then keeps them locked. Alone, others' events are appended and must be
// handled meanwhile.
func (s *strike) lockTenant() error {
	at := s.rnd.IntN(len(tenants))
	events := pgx.Identifier{"millrace_" + tenants[at], "events"}.Sanitize()
	tx, err := s.admin.Begin(s.ctx)
	if err != nil {
		return nil // the server is away
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }()
	if !s.alone {
		_ = s.exec("vacuum full " + events)
	}
	if _, err = tx.Exec(s.ctx, "set local lock_timeout = 5000; lock table "+events+" in access exclusive mode"); err != nil {
		return s.unlessAlone(err)
	}
	if !s.alone {
		s.wait(s.lasts)
		return nil
	}
	others := slices.Concat(tenants[:at], tenants[at+1:])
	for began, end := time.Now(), time.Now().Add(s.lasts); time.Now().Before(end); {
		for _, other := range others {
			if err := s.handledSoon(other); err != nil {
				return fmt.Errorf("%v after the lock: %w", time.Since(began), err)
			}
		}
	}
	return nil
}

// handledLimit is far more than an event takes from its append until all projections have handled it, and less than a
// query may take that waits for a lock.
const handledLimit = 2500 * time.Millisecond

// handledSoon appends an event and waits until every projection of its tenant has handled it.
func (s *strike) handledSoon(name string) error {
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	result, err := tenant.Append(s.ctx, "soon", event.Any, event.Event{Type: typeOdd})
	if err != nil {
		return err
	}
	return until(s.ctx, handledLimit, "an event of "+name+" is handled", func() bool {
		behind, err := rows(s.cluster, scanNumber, `select count(*) from millrace.leases l join millrace.projections p using (id)
			where p.tenant = $1 and p.name <> $2 and l.checkpoint < $3`, name, deadly, result.Positions[0])
		return err == nil && behind[0] == 0
	})
}
