package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestOperationsAreAllowedByHooksAndDeliveries(t *testing.T) {
	runs := handler.NewHook(func(context.Context, int) error { return nil })
	rebuild := func(options string) Operation {
		return Operation{NewOperation: NewOperation{Kind: OperationRebuild, Options: options}}
	}
	for _, c := range []struct {
		d    Definition
		o    Operation
		want error
	}{
		{Definition{Hooks: Hooks{Reset: runs}}, rebuild(""), nil},
		{Definition{}, rebuild(""), projection.ErrNoHook},
		{Definition{Hooks: Hooks{Swap: runs, Drop: runs}}, rebuild(""), projection.ErrNoHook},
		{Definition{Delivers: true, Hooks: Hooks{Reset: runs}}, rebuild(""), projection.ErrDelivers},
		{Definition{Delivers: true, Hooks: Hooks{Reset: runs}}, rebuild(`{"Redeliver": true}`), nil},
		{Definition{Delivers: true}, Operation{NewOperation: NewOperation{Kind: OperationSwap}}, nil},
		{Definition{}, Operation{NewOperation: NewOperation{Kind: OperationDrop}}, nil},
	} {
		if err := c.d.Allows(c.o); !errors.Is(err, c.want) {
			t.Errorf("%+v of %+v: %v, want %v", c.o, c.d, err, c.want)
		}
	}
	delivers := Definition{Delivers: true, Hooks: Hooks{Reset: runs}}
	if err := delivers.Allows(rebuild("{")); err == nil || errors.Is(err, projection.ErrDelivers) {
		t.Errorf("options that are no JSON: %v", err)
	}
}

func TestHookWithoutAFunctionDoesNothing(t *testing.T) {
	called := 0
	runs := handler.NewHook(func(_ context.Context, tx int) error {
		called = tx
		return io.EOF
	})
	if err := runs.Call(t.Context(), 7); !errors.Is(err, io.EOF) || called != 7 {
		t.Errorf("%v, called with %d", err, called)
	}
	none := handler.NewHook[int](nil)
	if err := none.Call(t.Context(), 7); err != nil || none.Run != nil || none.Tx != runs.Tx {
		t.Errorf("%v, %+v", err, none)
	}
}

func TestOptionsAndFailuresOfOperationsOutliveTheStore(t *testing.T) {
	o, err := NewOperation{Kind: OperationSwap}.Encode(SwapOptions{CatchUp: time.Minute, AllowParked: true})
	var options SwapOptions
	if err := errors.Join(err, Operation{NewOperation: o}.Decode(&options)); err != nil ||
		options != (SwapOptions{CatchUp: time.Minute, AllowParked: true}) {
		t.Errorf("%+v, %v", options, err)
	}
	options = SwapOptions{AllowParked: true}
	if err := (Operation{}).Decode(&options); err != nil || !options.AllowParked {
		t.Errorf("without options: %+v, %v", options, err)
	}
	failed := Operation{Failure: FailureOf(projection.ErrBehind), Error: "far behind"}
	if err := failed.Err(); !errors.Is(err, projection.ErrBehind) || err.Error() != "far behind" {
		t.Errorf("%v", err)
	}
	if err := (Operation{Error: "the last try"}).Err(); err != nil {
		t.Errorf("an operation that has not failed: %v", err)
	}
	if err := EndsOperation(io.EOF); !errors.Is(err, io.EOF) || EndsOperation(nil) != nil {
		t.Errorf("%v", err)
	}
}

func TestRetiredNamesSayWhatHappened(t *testing.T) {
	for reason, want := range map[RetiredReason]struct {
		text      string
		byVersion bool
	}{
		Forgotten: {"forgotten", false},
		Renamed:   {`renamed to "q"`, false},
		Replaced:  {`replaced by "q"`, true},
		Unused:    {`began with "q"`, true},
	} {
		r := &Retired{Tenant: "t", Name: "p", Reason: reason, Successor: "q"}
		if !errors.Is(r, projection.ErrRetired) || !strings.HasSuffix(r.Error(), want.text) ||
			r.ByVersion() != want.byVersion {
			t.Errorf("%s: %v, by a version: %v", reason, r, r.ByVersion())
		}
	}
}

func TestProjectionsBeginAtTheFirstEventUnlessTheySayWhere(t *testing.T) {
	for start, later := range map[projection.Start]bool{
		{}:                      false,
		{Position: 1}:           false,
		{Position: 2}:           true,
		{End: true}:             true,
		{Time: time.Unix(1, 0)}: true,
	} {
		if got := (NewProjection{Start: start}).BeginsLater(); got != later {
			t.Errorf("%+v: %v", start, got)
		}
	}
}

type tenants []Tenant

func (l tenants) Tenants(context.Context, []string) ([]Tenant, error) {
	if l == nil {
		return nil, io.EOF
	}
	return l, nil
}

func TestTenantsThatRunNothingSayWhy(t *testing.T) {
	in := func(state tenancy.State) tenants { return tenants{{State: state}} }
	for _, c := range []struct {
		list tenants
		want error
	}{
		{nil, io.EOF},
		{tenants{}, tenancy.ErrUnknown},
		{in(tenancy.Active), nil},
		{in(tenancy.Paused), nil},
		{in(tenancy.Archived), tenancy.ErrArchived},
		{in(tenancy.Dropping), tenancy.ErrDropping},
		{in(tenancy.Copying), tenancy.ErrCopying},
	} {
		if err := InactiveTenant(t.Context(), lists{tenants: c.list}, "t"); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.list, err, c.want)
		}
	}
}

// lists lists tenants, and nothing else.
type lists struct {
	Lists
	tenants tenants
}

func (l lists) Tenants(ctx context.Context, names []string) ([]Tenant, error) {
	return l.tenants.Tenants(ctx, names)
}
