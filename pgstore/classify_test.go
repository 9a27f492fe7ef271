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

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestClassOfSQLStates(t *testing.T) {
	t.Parallel()
	const (
		infra, handler, config, lost = faults.Infrastructure, faults.Handler, faults.Configuration,
			faults.LeaseLost
		unclear, interrupted, missing = faults.Unclear, faults.Interrupted, faults.MissingObject
	)
	for _, test := range []struct {
		code  string
		class faults.Class
		// own is the class where the statement is one of ours.
		own faults.Class
	}{
		{"08000", unclear, infra}, {"08001", unclear, infra}, {"08006", unclear, infra}, {"08P01", unclear, infra},
		{"57P01", unclear, infra}, {"57P02", unclear, infra}, {"57P03", unclear, infra}, {"57P05", unclear, infra},
		{"53000", unclear, infra}, {"53100", unclear, infra}, {"53200", unclear, infra}, {"53300", unclear, infra},
		{"53400", unclear, infra},
		{"58000", unclear, infra}, {"58030", unclear, infra}, {"XX000", unclear, infra}, {"XX001", unclear, infra},
		{"F0001", unclear, infra}, {"28P01", unclear, infra}, {"28000", unclear, infra},
		{"25006", unclear, infra}, {"40003", unclear, infra}, {"55006", unclear, infra}, {"25P03", unclear, infra},
		{"25P04", unclear, infra},
		{"40001", infra, infra}, {"40P01", infra, infra}, {"55P03", infra, infra},
		{"57014", interrupted, infra}, {"26000", interrupted, infra}, {"42P05", interrupted, infra},
		{"42P01", missing, config}, {"42703", missing, config}, {"42883", missing, config}, {"3F000", missing, config},
		{"42501", missing, config},
		{"3D000", config, config}, {"MR001", lost, lost},

		{"23505", handler, infra}, {"23503", handler, infra}, {"23514", handler, infra}, {"22012", handler, infra},
		{"42601", handler, infra}, {"25P02", handler, infra},
		{"40002", handler, infra}, {"40000", handler, infra}, {"25001", handler, infra}, {"P0001", handler, infra},
		{"0A000", handler, infra}, {"MR002", handler, infra}, {"54000", handler, infra}, {"57000", handler, infra},
		{"", handler, infra}, {"4", handler, infra}, {"zzzzz", handler, infra},
	} {
		for _, err := range []error{&pgconn.PgError{Code: test.code},
			fmt.Errorf("around: %w", &pgconn.PgError{Code: test.code})} {
			fault, own := classify(err), storeFault(err)
			if fault.Class != test.class || fault.Unreachable || !errors.Is(fault, err) {
				t.Errorf("%s: %v, unreachable %v; want %v", test.code, fault.Class, fault.Unreachable, test.class)
			}
			if own.Class != test.own ||
				errors.Is(own, ErrNotMigrated) != (test.class == missing && test.code != "42501") {
				t.Errorf("%s of ours: %v, %v; want %v", test.code, own.Class, own, test.own)
			}
			if fault.Probe != (test.class == unclear) || own.Probe != fault.Probe || own.Unreachable {
				t.Errorf("%s asks for a probe: %v; of ours %v", test.code, fault.Probe, own.Probe)
			}
			if errors.Is(fault, projection.ErrLeaseLost) != (test.class == lost) {
				t.Errorf("%s: %v", test.code, fault)
			}
		}
	}
}

func TestClassOfErrors(t *testing.T) {
	t.Parallel()
	const infra, handler, config, lost, unclear = faults.Infrastructure, faults.Handler, faults.Configuration,
		faults.LeaseLost, faults.Unclear
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, test := range []struct {
		err   error
		class faults.Class
	}{
		{io.EOF, unclear}, {io.ErrUnexpectedEOF, unclear}, {net.ErrClosed, unclear}, {timeout, unclear},
		{syscall.ECONNREFUSED, unclear}, {syscall.ECONNRESET, unclear}, {syscall.EPIPE, unclear},
		{context.DeadlineExceeded, unclear}, {context.Canceled, infra}, {pgx.ErrTxClosed, unclear},
		{&net.DNSError{Err: "no such host"}, unclear}, {&pgconn.ConnectError{}, unclear},
		{projection.ErrLeaseLost, lost},
		{event.ErrNotPrimary, unclear}, {tenancy.ErrRestored, config}, {tenancy.ErrUnknown, config},
		{ErrNotMigrated, config},
		{projection.ErrLockWait, infra}, {errors.Join(projection.ErrLockWait, io.EOF), infra},
		{projection.ErrTimeout, handler}, {errors.Join(projection.ErrTimeout, io.EOF), handler},
		{ErrBatchEnded, handler}, {ErrTxControl, handler}, {projection.ErrHandlerPanic, handler},
		{pgx.ErrNoRows, handler}, {errors.New("any"), handler},
		{pgx.ErrTxCommitRollback, handler},
		{&faults.Fault{Class: lost, Err: io.EOF}, lost},
		{&faults.Fault{Class: handler, Err: io.EOF}, handler},
	} {
		for _, err := range []error{test.err, fmt.Errorf("around: %w", test.err)} {
			fault := classify(err)
			if fault.Class != test.class || fault.Probe != (test.class == unclear) {
				t.Errorf("%v: %v, want %v", err, fault.Class, test.class)
			}
			want := test.class
			if want == handler || want == unclear {
				want = infra // no handler is to blame for what we do ourselves
			}
			if own := storeFault(err); own.Class != want || own.Probe != fault.Probe {
				t.Errorf("%v of ours: %v, want %v", err, own.Class, want)
			}
		}
	}
	if classify(nil) != nil || storeFault(nil) != nil {
		t.Error("no error has a fault")
	}
}

func TestFaultKeepsPositionAndStack(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("around: %w", &projection.EventError{Position: 7, Stack: "here", Err: errors.New("bad")})
	if fault := classify(err); fault.Position != 7 || fault.Stack != "here" || fault.Class != faults.Handler {
		t.Errorf("%+v", fault)
	}
	if fault := storeFault(err); fault.Position != 7 || fault.Class != faults.Infrastructure {
		t.Errorf("%+v", fault)
	}
}

// What a batch's own connection has not noted is the handler's, unless a server says
// by its SQLSTATE that it is not.
func TestClassOfErrorsThatHandlersReturn(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	called := &handlerCall{tx: guard.New(nil), conn: conn.PgConn()}
	for _, test := range []struct {
		err   error
		class faults.Class
	}{
		{&pgconn.PgError{Code: "40001"}, faults.Infrastructure}, {&pgconn.PgError{Code: "57P01"}, faults.Unclear},
		{&pgconn.PgError{Code: "23505"}, faults.Handler}, {&pgconn.PgError{Code: "3D000"}, faults.Handler},
		{&pgconn.PgError{Code: "MR001"}, faults.Handler}, {event.ErrNotPrimary, faults.Handler},
		{io.EOF, faults.Handler}, {syscall.ECONNREFUSED, faults.Handler},
		{errors.New("any"), faults.Handler},
	} {
		for _, err := range []error{test.err, projection.At(3, test.err)} {
			fault := classify(called.Returned(err))
			if fault.Class != test.class || fault.Position != projection.FailedPosition(err) || fault.Unreachable {
				t.Errorf("%v: %+v, want %v", err, fault, test.class)
			}
		}
	}
	if called.Returned(nil) != nil {
		t.Error("no error has a fault")
	}
	_ = conn.Close(testContext(t))
	fault := classify(called.Returned(errors.New("any")))
	if fault.Class != faults.Unclear || !fault.Probe {
		t.Errorf("over a closed connection: %+v", fault)
	}
}
