// Package millracetest tests the projections of a program:
//
//	func TestTotals(t *testing.T) {
//		k := millracetest.SQLite(t, "create table totals (customer text primary key, total integer)")
//		k.Given("order-1", event.New(OrderPaid{"Ada", 30}), event.New(OrderPaid{"Ada", 12}))
//		k.When(totals())
//		k.Then("select customer, total from totals order by 1", "Ada | 42")
//	}
//
// A Kit has a store that only the test uses: SQLite makes a file, Postgres makes a database, and New takes a store that
// the test has opened. Given appends events, When runs projections until they have handled all events, and Then
// compares the rows of a query. Tenant returns the Kit of another tenant on the same store.
//
// An event that is parked counts as handled. So a Kit fails the test at its end if events were parked that the test did
// not expect by Parked. WhenFails expects a projection that stops. Rebuild, Swap and DropVersion run the hooks of a
// projection.
//
// FailAt, LostCommit, Slow and LostLease are faults that disturb a projection. Repeatable runs a projection with such
// faults, and fails if its read model differs from that of an undisturbed run.
//
// The package imports package testing, and the drivers of all stores. Only tests may import it.
package millracetest
