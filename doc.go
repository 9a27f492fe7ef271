// Package millrace runs projections over a PostgreSQL event store inside long-running servers.
//
// A projection is a named handler and its checkpoint. The handler gets events in order, together with a transaction in
// which it writes its read model; the checkpoint is advanced in the same transaction, under a fenced lease. So every
// committed event reaches every projection once: none is skipped, however appends interleave or stay open, and none is
// applied twice, whatever process is paused, killed or cut off.
//
//	store, _ := pgstore.Open(ctx, dsn, pgstore.Options{})
//	_ = store.Migrate(ctx)
//	rt, _ := millrace.New(millrace.Config{Store: store})
//	_ = rt.Register(millrace.Projection{Name: "orders", Batch: applyOrders})
//	err := rt.Run(ctx) // until ctx is done
//
// Events are appended by package pgstore, in a transaction of their own or in one of the caller's.
package millrace
