package chaos_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// serverErrors are statements that fail with an SQLSTATE that alone does not say whether the server or the handler is
// at fault.
var serverErrors = map[string][]string{
	"XX000": {"select pg_catalog.pg_describe_object(999999, 1, 0)"},
	"53400": {"set local work_mem = '64kB'", "select count(*) from generate_series(1, 200000)"},
	"57014": {"set local statement_timeout = '5ms'", "select pg_catalog.pg_sleep(10)"},
}

// temporaryFiles limits the temporary files of a session, for the error 53400.
const temporaryFiles = "alter database %s set temp_file_limit = '1MB'"

var handlerFaults = []fault{
	handlersFail("XX000", "an extension refuses input"),
	handlersFail("53400", "temp_file_limit"),
	handlersFail("57014", "the handler's own timeout"),
	{
		name:    "an operator cancels statements of handlers",
		expects: "the batches are retried, and nothing is parked",
		reach:   reachData, weight: 2, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: (*strike).cancelStatements,
	},
}

// handlersFail is the fault that handlers of a node fail with an error of the server again and again, each event at
// most once.
func handlersFail(code, how string) fault {
	return fault{
		name:    fmt.Sprintf("handlers fail with %s: %s", code, how),
		expects: "the batches are retried, and nothing is parked",
		weight:  2, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			return s.ifAlone(s.repeat(20, 150, func() error { return s.victim.order(orderFail + " " + code) }))
		},
		check: func(s *strike) error {
			if s.victim.reported("failed with "+code) == 0 {
				return fmt.Errorf("no handler failed with %s", code)
			}
			return nil
		},
	}
}

// failAsOrdered makes a statement of the handler fail, after orderFail.
func (o *orders) failAsOrdered(ctx context.Context, tx pgx.Tx, id projection.ID, events []event.Envelope) error {
	code := o.takeFault(id, events)
	if code == "" {
		return nil
	}
	for _, sql := range serverErrors[code] {
		if _, err := tx.Exec(ctx, sql); err != nil {
			o.report("failed with %s: %v", code, err)
			return err
		}
	}
	return fmt.Errorf("no statement failed with %s", code)
}

// queueAsOrdered is failAsOrdered for a handler that queues its statements.
func (o *orders) queueAsOrdered(q pgstore.Queue, id projection.ID, events []event.Envelope) {
	if code := o.takeFault(id, events); code != "" {
		for _, sql := range serverErrors[code] {
			q.Exec(sql)
		}
		o.report("failed with %s: queued", code)
	}
}

// takeFault returns the error that a statement should fail with, or an empty text. It spares events that have failed
// before, because an event that fails repeatedly is at fault itself.
func (o *orders) takeFault(id projection.ID, events []event.Envelope) (code string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	code = o.failWith
	if code == "" || events[0].Position <= o.failedUpTo[id] {
		return ""
	}
	o.failWith, o.failedUpTo[id] = "", events[len(events)-1].Position
	return code
}

// cancelStatements cancels statements of handlers, rarely enough that no event fails several times in a row, which
// would park it. It spares statements of audit, which parks an event that fails once, and those that wait for a lock,
// which would be canceled until the lock is released.
func (s *strike) cancelStatements() error {
	canceled := int64(0)
	for end := time.Now().Add(s.lasts); time.Now().Before(end) || s.alone && canceled == 0; {
		n, err := value[int64](s.cluster,
			`select count(*) filter (where pg_cancel_backend(pid)) from (select pid from pg_stat_activity
			where datname = current_database() and usename = $1 and state <> 'idle' and wait_event_type is distinct from 'Lock'
			and query ~ '^/[*] (ledger|search|totals|shipments) [*]/' order by random() limit 1) victims`, app)
		if err != nil || s.ctx.Err() != nil {
			return s.ifAlone(err)
		}
		canceled += n
		if n > 0 {
			s.wait(200 * time.Millisecond)
		}
		s.wait(time.Duration(s.rnd.IntN(40)) * time.Millisecond)
	}
	return nil
}
