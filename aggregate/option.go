package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/cause"
	"github.com/millrace-go/millrace/internal/eventlog"
)

// defaultRetries is how often a command is decided again. Each time other commands on the same streams have gone on.
const defaultRetries = 10

// Option changes how Do and Run carry out a command.
type Option func(*options)

type options struct {
	retries int
	key     string
	keyed   bool
	cause   cause.Cause
}

// Retries limits how often the command is decided again after other commands were faster. The default is 10. After the
// last one, or with 0, the error of the conflict is returned: event.ErrVersionConflict, or that of the database for a
// deadlock.
func Retries(n int) Option { return func(o *options) { o.retries = n } }

// Key gives the command an idempotency key: the id that the client gave it, and gives again when it repeats it. The
// command has its effect once. A repeat appends nothing, and returns the result of the first time, even if the decision
// refuses it now: the state has its effect already. A command that was refused, or that had nothing to append, leaves
// no trace, so a repeat decides it anew.
//
// Two commands of a tenant must not have the same key. If a key was used for another stream, Do returns
// event.ErrKeyReused. Run cannot tell the two apart, and returns the result of the first.
//
// The events of the command get the key as their CausationID, unless the decision sets one. In a handler, the key takes
// the place of the handled event there: the event led to the command, and the command to its events. The CorrelationID
// comes from the handled event, as without a key: see event.CausedBy.
//
// The stores keep keys for a limited time: see Options.KeyRetention there.
func Key(key string) Option { return func(o *options) { o.key, o.keyed = key, true } }

func newOptions(ctx context.Context, list []Option) (options, error) {
	o := options{retries: defaultRetries, cause: cause.From(ctx)}
	for _, set := range list {
		set(&o)
	}
	if o.retries < 0 {
		return o, fmt.Errorf("Retries must not be negative: %d", o.retries)
	}
	if err := o.expect(0).Validate(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return o, nil
}

// expect returns what an append at that version expects.
func (o options) expect(version int64) event.Expected {
	expected := event.Exact(version)
	if o.keyed {
		expected = expected.WithKey(o.key)
	}
	return expected
}

// caused returns the events of the command with their cause. Folds see it, as they do when the aggregate is loaded
// again.
func (o options) caused(events []event.Event) []event.Event {
	if o.keyed {
		events = slices.Clone(events)
		for i := range events {
			events[i].CausationID = cmp.Or(events[i].CausationID, o.key)
		}
	}
	return eventlog.Caused(o.cause, events)
}
