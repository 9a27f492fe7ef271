// Package aggregate is the write side of a service: it loads the state of an aggregate, decides on a command, and
// appends events.
//
// An aggregate is a value that is folded from the events of one stream: an order, an account. A Category describes
// those of one kind, by a pure function for each type of event:
//
//	var orders = aggregate.New("order", // the streams order-…
//		aggregate.On(func(o Order, e event.Of[OrderPlaced]) Order { … }),
//		aggregate.On(func(o Order, e event.Of[OrderPaid]) Order { … }),
//	)
//
// Do carries out a command. The decision is a function from the present state to events, or an error that refuses the
// command:
//
//	r, err := orders.Do(ctx, tenant, id, func(o Order) ([]event.Event, error) {
//		if o.Paid {
//			return nil, ErrPaidAlready
//		}
//		return []event.Event{event.New(OrderPaid{Cents: o.Cents})}, nil
//	}, aggregate.Key(requestID))
//	…
//	err = rt.WaitFor(ctx, readModel, r.Position)
//
// The append expects the version that the decision has seen. If another command was faster, Do reads what is new and
// decides again. A command with a key has its effect once, however often it is repeated.
//
// Run does the same for several aggregates in one transaction, with statements of the caller's own. Within makes Do and
// Run use a transaction that is open, such as that of a projection's handler. So a handler can react to each event with
// commands of its own, exactly once.
package aggregate
