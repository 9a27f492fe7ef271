package kit

import (
	"context"

	"github.com/millrace-go/millrace/internal/store"
)

// Trace has the functions that are called in one transaction of the control plane, or in one view. Those that are nil
// are not called.
type Trace struct {
	// Statement is called before a statement runs. Its error ends the transaction.
	Statement func(name string, args []any) error
	// Row is called with the results of each row before the control plane sees them, and may change them.
	Row func(statement string, results []any)
	// Ended is called after the commit.
	Ended func()
}

// Tracing returns a store that traces the transactions of Tx and the views of View. Fenced, ViewIn, Change and Lend are
// not traced. begin begins the trace of each transaction and each view.
func Tracing(s Store, begin func() Trace) Store { return tracingStore{s, begin} }

type tracingStore struct {
	Store
	begin func() Trace
}

func (s tracingStore) Engine() store.Driver { return tracedDriver{s.Store.Engine(), s.begin} }

type tracedDriver struct {
	store.Driver
	begin func() Trace
}

func (d tracedDriver) Tx(ctx context.Context, fn func(store.Tx) error) error {
	var t *tracedTx
	err := d.Driver.Tx(ctx, func(tx store.Tx) error {
		t = &tracedTx{Tx: tx, tracedView: tracedView{tx, d.begin(), new(tracing)}}
		if err := fn(t); err != nil {
			return err
		}
		return t.failed
	})
	if err != nil {
		return err
	}
	t.later()
	if t.trace.Ended != nil {
		t.trace.Ended()
	}
	return nil
}

func (d tracedDriver) View(ctx context.Context, fn func(store.View) error) error {
	return d.Driver.View(ctx, func(v store.View) error { return fn(tracedView{v, d.begin(), new(tracing)}) })
}

// tracing is the state of a trace: the error of Trace.Statement, and the statements whose rows come with the next one.
type tracing struct {
	failed  error
	pending []func()
}

type tracedView struct {
	store.View
	trace Trace
	*tracing
}

func (v tracedView) begin(statement string, args []any) bool {
	if v.failed == nil && v.trace.Statement != nil {
		v.failed = v.trace.Statement(statement, args)
	}
	return v.failed == nil
}

func (v tracedView) row(statement string, results []any) {
	if v.trace.Row != nil {
		v.trace.Row(statement, results)
	}
}

func (v tracedView) later() {
	for _, row := range v.pending {
		row()
	}
	v.pending = nil
}

func (v tracedView) One(statement string, args []any, results ...any) (bool, error) {
	if !v.begin(statement, args) {
		return false, v.failed
	}
	found, err := v.View.One(statement, args, results...)
	v.later()
	if found && err == nil {
		v.row(statement, results)
	}
	return found, err
}

func (v tracedView) Each(statement string, args, results []any, fn func() error) error {
	if !v.begin(statement, args) {
		return v.failed
	}
	defer v.later()
	return v.View.Each(statement, args, results, func() error {
		v.row(statement, results)
		return fn()
	})
}

type tracedTx struct {
	store.Tx
	tracedView
}

func (t *tracedTx) One(statement string, args []any, results ...any) (bool, error) {
	return t.tracedView.One(statement, args, results...)
}

func (t *tracedTx) Each(statement string, args, results []any, fn func() error) error {
	return t.tracedView.Each(statement, args, results, fn)
}

func (t *tracedTx) Exec(statement string, args ...any) {
	if t.begin(statement, args) {
		t.Tx.Exec(statement, args...)
	}
}

func (t *tracedTx) Must(otherwise error, statement string, args ...any) {
	if t.begin(statement, args) {
		t.Tx.Must(otherwise, statement, args...)
	}
}

func (t *tracedTx) Later(statement string, args []any, results ...any) {
	if t.begin(statement, args) {
		t.Tx.Later(statement, args, results...)
		t.pending = append(t.pending, func() { t.row(statement, results) })
	}
}

// Step is a step of an operation on its node.
type Step string

// The steps of an operation, in their order. Those from Looks to Held may come several times.
const (
	Taken     Step = "taken"
	Looks     Step = "looks"   // how far a version is
	Holds     Step = "holds"   // it is about to make projections stand still
	Holding   Step = "holding" // it has asked their owners to stop
	Held      Step = "held"    // they stood still when the transaction looked, not always when the hold began
	Runs      Step = "runs"    // the transaction is about to begin
	Hooks     Step = "hooks"   // the hook is about to run
	Hooked    Step = "hooked"  // the hook has run
	Committed Step = "committed"
)

// AtSteps returns a store whose runtimes call at at each step of the operations that they carry out. names are the
// projections that stand still at Held.
func AtSteps(s Store, at func(step Step, names []string)) Store {
	return steppedStore{Tracing(s, func() Trace { return traceSteps(at) }), at}
}

func traceSteps(at func(step Step, names []string)) Trace {
	var taken, holding bool
	var stopped []string // by an operation
	still := true
	return Trace{
		Statement: func(name string, args []any) error {
			switch name {
			case "versions":
				at(Looks, nil)
			case "stop_state":
				if args[2].(*int64) != nil && stopped == nil {
					at(Holds, nil)
				}
			case "hold":
				holding = true
			case "free_stopped":
				if args[2].(*int64) != nil {
					stopped = args[1].([]string)
				}
			}
			return nil
		},
		Row: func(statement string, results []any) {
			switch statement {
			case "take_operation":
				taken = *results[0].(*bool)
			case "stop_state":
				stands, living, free := *results[0].(*bool), *results[1].(*bool), *results[2].(*bool)
				still = still && stands && !living && free
			}
		},
		Ended: func() {
			if taken {
				at(Taken, nil)
			}
			if holding {
				at(Holding, nil)
			}
			if stopped != nil && still {
				at(Held, stopped)
			}
		},
	}
}

type steppedStore struct {
	Store
	at func(step Step, names []string)
}

func (s steppedStore) Engine() store.Driver { return steppedDriver{s.Store.Engine(), s.at} }

type steppedDriver struct {
	store.Driver
	at func(step Step, names []string)
}

// Lend is called for operations, and for versions with which tenants begin: they have no leases.
func (d steppedDriver) Lend(ctx context.Context, l store.Lending) error {
	if len(l.Rows) == 0 {
		return d.Driver.Lend(ctx, l)
	}
	d.at(Runs, nil)
	if hook := l.Hook.Run; hook != nil {
		l.Hook.Run = func(ctx context.Context, tx any) error {
			d.at(Hooks, nil)
			err := hook(ctx, tx)
			d.at(Hooked, nil)
			return err
		}
	}
	if err := d.Driver.Lend(ctx, l); err != nil {
		return err
	}
	d.at(Committed, nil)
	return nil
}
