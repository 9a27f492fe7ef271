// Package millrace runs projections over an event store inside long-running servers.
//
// A projection is a named handler with a checkpoint. The handler gets events in order, and a transaction in which it
// writes its read model. The checkpoint advances in the same transaction, under a fenced lease. So every committed
// event is applied once. None is skipped, even if appends overlap or stay open. None is applied twice, even if
// processes are paused, killed or cut off.
//
//	store, err := pgstore.Open(ctx, dsn, pgstore.Options{}) // or sqlitestore.Open(ctx, "shop.db", sqlitestore.Options{})
//	err = store.Migrate(ctx)
//	rt, err := millrace.New(millrace.Config{Store: store, Logger: millrace.SlogLogger(slog.Default())})
//	err = rt.Register(millrace.Projection{Name: "totals", Handler: pgstore.On(addItem)})
//	err = rt.Run(ctx) // until ctx is done
//
// Package event defines events and their types. Package pgstore appends and reads them in a PostgreSQL database,
// package sqlitestore in a file, without a server. Each of the two makes handlers that get a transaction of its
// database. Package projection has the policies, failures and errors of projections, and package tenancy the states of
// tenants and the errors about them. Package admin observes and changes projections, on all nodes, and moves tenants
// from one store to another. Deliver, DeliverEach and DeliverOn make handlers that work outside of the database, for
// mails or webhooks.
//
// Any number of processes may run the same projections. On PostgreSQL they share the projections. On a file one process
// runs all projections, and the others stand by. In both cases other processes take over from a process that ends.
//
// The examples run as they stand. Those that use pgstore need a database in the environment variable MILLRACE_DSN.
package millrace
