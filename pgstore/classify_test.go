package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/projection"
)

func TestClassOfSQLStates(t *testing.T) {
	const infra, handler, config, lost = projection.Infrastructure, projection.HandlerFault, projection.Configuration, projection.LeaseLost
	for _, test := range []struct {
		code        string
		class       projection.Class
		unreachable bool
		// own is the class where the statement is one of ours.
		own projection.Class
	}{
		{"08000", infra, true, infra}, {"08006", infra, true, infra}, {"08P01", infra, true, infra},
		{"57P01", infra, true, infra}, {"57P02", infra, true, infra}, {"57P03", infra, true, infra}, {"57P05", infra, true, infra},
		{"53000", infra, true, infra}, {"53100", infra, true, infra}, {"53200", infra, true, infra}, {"53300", infra, true, infra},
		{"58000", infra, true, infra}, {"58030", infra, true, infra}, {"XX000", infra, true, infra}, {"XX001", infra, true, infra},
		{"F0001", infra, true, infra}, {"28P01", infra, true, infra}, {"28000", infra, true, infra},
		{"25006", infra, true, infra}, {"40003", infra, true, infra},
		{"40001", infra, false, infra}, {"40P01", infra, false, infra}, {"55P03", infra, false, infra}, {"55006", infra, false, infra},
		{"25P03", infra, false, infra}, {"25P04", infra, false, infra},
		{"3D000", config, false, config}, {"MR001", lost, false, lost},

		{"23505", handler, false, infra}, {"23503", handler, false, infra}, {"23514", handler, false, infra}, {"22012", handler, false, infra},
		{"42601", handler, false, infra}, {"42P01", handler, false, config}, {"42703", handler, false, config}, {"42883", handler, false, config},
		{"3F000", handler, false, config}, {"42501", handler, false, config}, {"57014", handler, false, infra}, {"25P02", handler, false, infra},
		{"40002", handler, false, infra}, {"40000", handler, false, infra}, {"25001", handler, false, infra}, {"P0001", handler, false, infra},
		{"0A000", handler, false, infra}, {"MR002", handler, false, infra}, {"54000", handler, false, infra}, {"57000", handler, false, infra},
		{"", handler, false, infra}, {"4", handler, false, infra}, {"zzzzz", handler, false, infra},
	} {
		for _, err := range []error{&pgconn.PgError{Code: test.code}, fmt.Errorf("around: %w", &pgconn.PgError{Code: test.code})} {
			fault := classify(err)
			if fault.Class != test.class || fault.Unreachable != test.unreachable || !errors.Is(fault, err) {
				t.Errorf("%s: %v, unreachable %v; want %v, %v", test.code, fault.Class, fault.Unreachable, test.class, test.unreachable)
			}
			if own := ownFault(err); own.Class != test.own || errors.Is(own, ErrNotMigrated) != (test.own == config && test.code != "42501" && test.code != "3D000") {
				t.Errorf("%s of ours: %v, %v; want %v", test.code, own.Class, own, test.own)
			}
			if errors.Is(fault, projection.ErrLeaseLost) != (test.class == lost) {
				t.Errorf("%s: %v", test.code, fault)
			}
		}
	}
}

func TestClassOfErrors(t *testing.T) {
	const infra, handler, config, lost = projection.Infrastructure, projection.HandlerFault, projection.Configuration, projection.LeaseLost
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, test := range []struct {
		err         error
		class       projection.Class
		unreachable bool
	}{
		{io.EOF, infra, true}, {io.ErrUnexpectedEOF, infra, true}, {net.ErrClosed, infra, true}, {timeout, infra, true},
		{syscall.ECONNREFUSED, infra, true}, {syscall.ECONNRESET, infra, true}, {syscall.EPIPE, infra, true},
		{context.DeadlineExceeded, infra, true}, {context.Canceled, infra, false}, {pgx.ErrTxClosed, infra, true},
		{&net.DNSError{Err: "no such host"}, infra, true}, {&pgconn.ConnectError{}, infra, true},
		{projection.ErrLeaseLost, lost, false},
		{projection.ErrNotPrimary, config, false}, {projection.ErrRestored, config, false}, {projection.ErrUnknownTenant, config, false},
		{ErrNotMigrated, config, false},
		{ErrLockWait, infra, false}, {errors.Join(ErrLockWait, io.EOF), infra, false},
		{ErrDeadline, handler, false}, {errors.Join(ErrDeadline, io.EOF), handler, false},
		{ErrBatchEnded, handler, false}, {ErrTxControl, handler, false}, {newPanicError(1), handler, false},
		{pgx.ErrNoRows, handler, false}, {errors.New("any"), handler, false},
		{pgx.ErrTxCommitRollback, handler, false},
		{&projection.Fault{Class: lost, Unreachable: true, Err: io.EOF}, lost, true},
		{&projection.Fault{Class: handler, Err: io.EOF}, handler, false},
	} {
		for _, err := range []error{test.err, fmt.Errorf("around: %w", test.err)} {
			fault := classify(err)
			if fault.Class != test.class || fault.Unreachable != test.unreachable {
				t.Errorf("%v: %v, unreachable %v; want %v, %v", err, fault.Class, fault.Unreachable, test.class, test.unreachable)
			}
			want := test.class
			if want == handler {
				want = infra // no handler is to blame for what we do ourselves
			}
			if own := ownFault(err); own.Class != want {
				t.Errorf("%v of ours: %v, want %v", err, own.Class, want)
			}
		}
	}
	if classify(nil) != nil || ownFault(nil) != nil {
		t.Error("no error has a fault")
	}
}

func TestFaultKeepsWhichEventFailedAndWhere(t *testing.T) {
	err := fmt.Errorf("around: %w", &projection.EventError{Position: 7, Stack: "here", Err: errors.New("bad")})
	if fault := classify(err); fault.Position != 7 || fault.Stack != "here" || fault.Class != projection.HandlerFault {
		t.Errorf("%+v", fault)
	}
	if fault := ownFault(err); fault.Position != 7 || fault.Class != projection.Infrastructure {
		t.Errorf("%+v", fault)
	}
}

// What is not passed to handlerFault as an error of the batch's own connection is the handler's, unless a server says
// by its SQLSTATE that it is not.
func TestFaultOfAHandlerByWhatItReturns(t *testing.T) {
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	scoped := newScopedTx(nil)
	for _, test := range []struct {
		err   error
		class projection.Class
	}{
		{&pgconn.PgError{Code: "40001"}, projection.Infrastructure}, {&pgconn.PgError{Code: "57P01"}, projection.Infrastructure},
		{&pgconn.PgError{Code: "23505"}, projection.HandlerFault}, {&pgconn.PgError{Code: "3D000"}, projection.HandlerFault},
		{&pgconn.PgError{Code: "MR001"}, projection.HandlerFault}, {projection.ErrNotPrimary, projection.HandlerFault},
		{io.EOF, projection.HandlerFault}, {syscall.ECONNREFUSED, projection.HandlerFault}, {errors.New("any"), projection.HandlerFault},
	} {
		for _, err := range []error{test.err, projection.At(3, test.err)} {
			fault := classify(handlerFault(err, scoped, conn.PgConn()))
			if fault.Class != test.class || fault.Position != projection.FailedPosition(err) || fault.Unreachable {
				t.Errorf("%v: %+v, want %v", err, fault, test.class)
			}
		}
	}
	if handlerFault(nil, scoped, conn.PgConn()) != nil {
		t.Error("no error has a fault")
	}
	_ = conn.Close(testContext(t))
	fault := classify(handlerFault(errors.New("any"), scoped, conn.PgConn()))
	if fault.Class != projection.Infrastructure || !fault.Unreachable {
		t.Errorf("over a closed connection: %+v", fault)
	}
}
