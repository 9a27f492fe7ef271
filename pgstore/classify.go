package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// sqlClass classifies the SQLSTATEs that a handler's statement may meet. A row of two characters is a whole class.
// Every other SQLSTATE is the handler's fault: its statement failed. An SQLSTATE says nothing about the server as a
// whole: extensions raise XX000 for bad input, and a foreign server that is down is 08001. Source: PostgreSQL
// documentation, appendix A, "PostgreSQL Error Codes".
var sqlClass = map[string]faults.Class{
	"08":    faults.Unclear,        // connection exception, also of a foreign server
	"0A000": faults.Handler,        // feature_not_supported; see classOf
	"25006": faults.Unclear,        // read_only_sql_transaction: failover, disk protection, or set by the handler
	"25P03": faults.Unclear,        // idle_in_transaction_session_timeout: the process was frozen, or the handler slow
	"25P04": faults.Unclear,        // transaction_timeout
	"26000": faults.Interrupted,    // invalid_sql_statement_name: the session was reset under the statement cache
	"28":    faults.Unclear,        // invalid authorization: a rotation of passwords under way, or of a foreign server
	"3D000": faults.Configuration,  // invalid_catalog_name: the database is gone
	"3F000": faults.MissingObject,  // invalid_schema_name
	"40001": faults.Infrastructure, // serialization_failure
	"40003": faults.Unclear,        // statement_completion_unknown
	"40P01": faults.Infrastructure, // deadlock_detected
	"42501": faults.MissingObject,  // insufficient_privilege
	"42703": faults.MissingObject,  // undefined_column
	"42883": faults.MissingObject,  // undefined_function
	"42P01": faults.MissingObject,  // undefined_table
	"42P05": faults.Interrupted,    // duplicate_prepared_statement: a statement outlived its batch
	"53":    faults.Unclear,        // insufficient resources: disk full, out of memory, temp_file_limit
	"55006": faults.Unclear,        // object_in_use
	"55P03": faults.Infrastructure, // lock_not_available: lock time-out
	"57014": faults.Interrupted,    // query_canceled: pg_cancel_backend, or the handler's statement_timeout
	"57P":   faults.Unclear,        // operator intervention: shutdown, crash, a backend that was terminated
	"58":    faults.Unclear,        // system error: I/O
	"F0":    faults.Unclear,        // configuration file error
	"XX":    faults.Unclear,        // internal error, corruption, and errors of extensions

	pgerr.LeaseLost:          faults.LeaseLost,
	pgerr.IncarnationChanged: faults.Infrastructure,
	pgerr.NoIncarnation:      faults.Infrastructure,
	pgerr.Standby:            faults.Unclear,
	pgerr.TenantArchived:     faults.MissingObject, // an append of the handler's
	pgerr.TenantDropping:     faults.MissingObject,
	pgerr.TenantCopying:      faults.MissingObject,
}

// meaning maps the SQLSTATEs that the control schema's functions raise to errors.
var meaning = map[string]error{
	pgerr.LeaseLost:          projection.ErrLeaseLost,
	pgerr.IncarnationChanged: event.ErrIncarnationChanged,
	pgerr.Standby:            event.ErrNotPrimary,
	pgerr.TenantArchived:     tenancy.ErrArchived,
	pgerr.TenantDropping:     tenancy.ErrDropping,
	pgerr.TenantCopying:      tenancy.ErrCopying,
}

// classOf returns the class of a server's error: by its SQLSTATE, the first three characters of that, or its class.
func classOf(err *pgconn.PgError) faults.Class {
	switch {
	case err.Code == pgerr.NotSupported && err.Routine == "RevalidateCachedQuery":
		return faults.Interrupted // cached plan must not change result type: the message may be in any language
	case err.Code == pgerr.ProtocolViolation && err.Routine == "exec_bind_message":
		return faults.Handler // a queued statement has another number of arguments
	case err.Code == pgerr.QueryCanceled && err.Routine == "CopyGetData":
		return faults.Handler // the handler's own source of a COPY failed
	}
	for _, n := range []int{5, 3, 2} {
		if len(err.Code) >= n {
			if class, ok := sqlClass[err.Code[:n]]; ok {
				return class
			}
		}
	}
	return faults.Handler
}

// classify returns the fault behind err, or nil for nil.
func classify(err error) *faults.Fault {
	return faults.Classify(err, func(fault *faults.Fault) bool {
		var pgErr *pgconn.PgError
		switch {
		case errors.Is(err, ErrNotMigrated):
			fault.Class = faults.Configuration
		case errors.Is(err, ErrBatchEnded), errors.Is(err, ErrTxControl):
			// The handler is at fault, even if the connection failed afterwards.
		case errors.As(err, &pgErr):
			fault.Class = classOf(pgErr)
			if fault.Class == faults.MissingObject && pgErr.Code != pgerr.InsufficientPrivilege {
				fault.Missing = ErrNotMigrated
			}
			if means := meaning[pgErr.Code]; means != nil {
				fault.Err = fmt.Errorf("%w: %w", means, err)
			}
		case pgerr.FromConnection(err) && !errors.Is(err, context.Canceled):
			fault.Class = faults.Unclear
		default:
			return false
		}
		return true
	})
}

// storeFault classifies the error of a statement of the store.
func storeFault(err error) *faults.Fault { return classify(err).OfStore() }

// wrap adds what was being done to the error of a statement of the store. It returns nil if err is nil.
func wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), storeFault(err))
}
