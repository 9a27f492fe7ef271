package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/weak"
	"github.com/millrace-go/millrace/projection"
)

// The SQLSTATEs that the functions of the control schema raise.
const (
	stateLeaseLost  = "MR001"
	stateTxEnded    = "MR002"
	stateKeyedClash = "MR003"
)

var (
	// ErrBatchEnded tells that a handler ended the transaction of its batch. Nothing of the batch counts, but what the
	// handler committed by itself stays: it must not do that.
	ErrBatchEnded = errors.New("the handler ended the transaction of its batch")
	// ErrDeadline tells that a handler did not finish within its deadline.
	ErrDeadline = errors.New("the handler's deadline passed")
	// ErrLockWait tells that the deadline passed while the batch's session waited for a lock that somebody else holds.
	ErrLockWait = errors.New("the deadline passed while waiting for a lock")
	// ErrHandlerPanic tells that a handler panicked.
	ErrHandlerPanic = errors.New("the handler panicked")
	// ErrNotMigrated tells that the control schema, or something in it, is missing: Migrate was not called.
	ErrNotMigrated = errors.New("the schema is missing or too old: call Migrate")
)

// sqlClass says whose fault an SQLSTATE is. A row is a whole class where it has two characters. What stands nowhere is
// the handler's: it is the handler's statement that failed.
// Source: PostgreSQL documentation, appendix A, "PostgreSQL Error Codes".
var sqlClass = map[string]struct {
	class       projection.Class
	unreachable bool
}{
	"08":    {projection.Infrastructure, true},  // connection exception
	"25006": {projection.Infrastructure, true},  // read_only_sql_transaction: failover, or disk protection
	"25P03": {projection.Infrastructure, false}, // idle_in_transaction_session_timeout: the process was frozen
	"25P04": {projection.Infrastructure, false}, // transaction_timeout
	"40001": {projection.Infrastructure, false}, // serialization_failure
	"40003": {projection.Infrastructure, true},  // statement_completion_unknown
	"40P01": {projection.Infrastructure, false}, // deadlock_detected
	"53":    {projection.Infrastructure, true},  // insufficient resources: disk full, out of memory, too many connections
	"55006": {projection.Infrastructure, false}, // object_in_use
	"55P03": {projection.Infrastructure, false}, // lock_not_available: lock time-out
	"57P":   {projection.Infrastructure, true},  // operator intervention: shutdown, crash, cannot connect now
	"58":    {projection.Infrastructure, true},  // system error: I/O
	"28":    {projection.Infrastructure, true},  // invalid authorization: a rotation of passwords under way
	"3D000": {projection.Configuration, false},  // invalid_catalog_name: the database is gone
	"F0":    {projection.Infrastructure, true},  // configuration file error
	"XX":    {projection.Infrastructure, true},  // internal error, corruption

	stateLeaseLost: {projection.LeaseLost, false},
}

// lookUp finds the row of an SQLSTATE: itself, its first three characters, its class.
func lookUp(code string) (class projection.Class, unreachable bool) {
	for _, n := range []int{5, 3, 2} {
		if len(code) >= n {
			if row, ok := sqlClass[code[:n]]; ok {
				return row.class, row.unreachable
			}
		}
	}
	return projection.HandlerFault, false
}

// Classify tells whose fault err is, once and for all that is done about it. A nil err has none.
func (s Port) Classify(err error) *projection.Fault {
	fault := classify(err)
	if fault != nil && fault.Class == projection.Infrastructure && weak.Broken(weak.FaultClasses) {
		return &projection.Fault{Class: projection.HandlerFault, Err: err}
	}
	return fault
}

func classify(err error) *projection.Fault {
	if err == nil {
		return nil
	}
	var fault *projection.Fault
	if errors.As(err, &fault) {
		return fault
	}
	fault = &projection.Fault{Class: projection.HandlerFault, Position: projection.FailedPosition(err), Err: err}
	var at *projection.EventError
	if errors.As(err, &at) {
		fault.Stack = at.Stack
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, projection.ErrLeaseLost):
		fault.Class = projection.LeaseLost
	case errors.Is(err, projection.ErrNotPrimary), errors.Is(err, projection.ErrRestored),
		errors.Is(err, projection.ErrUnknownTenant), errors.Is(err, projection.ErrTenantDropped), errors.Is(err, ErrNotMigrated),
		errors.Is(err, projection.ErrUnknownProjection):
		fault.Class = projection.Configuration
	case errors.Is(err, ErrLockWait):
		fault.Class = projection.Infrastructure
	case errors.Is(err, ErrDeadline), errors.Is(err, ErrBatchEnded), errors.Is(err, ErrTxControl):
		// The handler's, whatever the connection said when it was cut off.
	case errors.As(err, &pgErr):
		fault.Class, fault.Unreachable = lookUp(pgErr.Code)
		if fault.Class == projection.LeaseLost {
			fault.Err = fmt.Errorf("%w: %w", projection.ErrLeaseLost, err)
		}
	case isConnectionError(err):
		fault.Class, fault.Unreachable = projection.Infrastructure, !errors.Is(err, context.Canceled)
	}
	return fault
}

func isInfrastructure(err error) bool { return classify(err).Class == projection.Infrastructure }

// isConnectionError tells whether err is about the way to the server and not about what was asked of it.
func isConnectionError(err error) bool {
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	return errors.As(err, &connectErr) || errors.As(err, &netErr) || pgconn.Timeout(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		pgconn.SafeToRetry(err)
}

// ownFault classifies the error of a statement of ours, where no handler is to blame: what would be the handler's is a
// fault of the configuration or, where nothing better is known, of the infrastructure.
func ownFault(err error) *projection.Fault {
	fault := classify(err)
	if fault == nil || fault.Class != projection.HandlerFault {
		return fault
	}
	own := *fault
	own.Class = projection.Infrastructure
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "3F000", "42P01", "42703", "42883": // schema, table, column or function missing
			own.Class, own.Err = projection.Configuration, errors.Join(ErrNotMigrated, err)
		case "42501": // insufficient_privilege
			own.Class = projection.Configuration
		}
	}
	return &own
}
