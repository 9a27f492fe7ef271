// Package pgerr recognises the errors of PostgreSQL and of the connection to it.
package pgerr

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The SQLSTATEs that the functions of the control schema raise.
const (
	LeaseLost          = "MR001"
	TransactionEnded   = "MR002"
	KeyedConflict      = "MR003"
	IncarnationChanged = "MR004"
	// NoIncarnation is raised where the server has no incarnation yet.
	NoIncarnation = "MR005"
	Standby       = "MR006"
	// TenantArchived, TenantDropping and TenantCopying are raised by appends.
	TenantArchived = "MR007"
	TenantDropping = "MR008"
	TenantCopying  = "MR009"
)

// SQLSTATEs of PostgreSQL. Source: PostgreSQL documentation, appendix A, "PostgreSQL Error Codes".
const (
	NotSupported          = "0A000"
	NoPreparedStatement   = "26000"
	ProtocolViolation     = "08P01"
	DuplicateStatement    = "42P05"
	ReadOnlyTransaction   = "25006"
	FailedTransaction     = "25P02"
	ForeignKeyViolation   = "23503"
	UndefinedSchema       = "3F000"
	SerializationFailure  = "40001"
	Deadlock              = "40P01"
	InsufficientPrivilege = "42501"
	UndefinedColumn       = "42703"
	UndefinedObject       = "42704"
	UndefinedFunction     = "42883"
	UndefinedTable        = "42P01"
	// OutOfMemory is also raised if the server has no room for more locks.
	OutOfMemory        = "53200"
	TooManyConnections = "53300"
	ConfigurationLimit = "53400"
	LockNotAvailable   = "55P03"
	QueryCanceled      = "57014"
)

// Is reports whether err comes from the server with one of these SQLSTATEs.
func Is(err error, states ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(states, pgErr.Code)
}

// LimitExceeded reports whether err says that a value exceeds a limit of the server's program. It is so each time.
func LimitExceeded(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "54")
}

// OfValue reports whether err may come from a single value that the server read or printed: it is invalid (22), exceeds
// a limit (54) or the memory, or cannot be read from the disk (58) or decoded (XX).
func OfValue(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || len(pgErr.Code) < 2 {
		return false
	}
	return pgErr.Code == OutOfMemory || slices.Contains([]string{"22", "54", "58", "XX"}, pgErr.Code[:2])
}

// OfResources reports whether an error of OfValue may also come from a server that has too little memory, or whose disk
// fails. The value alone is not to blame for it.
func OfResources(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == OutOfMemory || strings.HasPrefix(pgErr.Code, "58"))
}

// IsMissing reports whether err is about a schema or a table that does not exist.
func IsMissing(err error) bool { return Is(err, UndefinedSchema, UndefinedTable) }

// FromServer reports whether err comes from the server.
func FromServer(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr)
}

// FromConnection reports whether err is about the connection to the server, and not about a statement.
func FromConnection(err error) bool {
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	return errors.As(err, &connectErr) || errors.As(err, &netErr) || pgconn.Timeout(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		pgconn.SafeToRetry(err)
}
