// Package admin observes and changes the projections of a store, on all nodes. It needs no runtime.
//
//	a, err := admin.New(store) // a *pgstore.Store or a *sqlitestore.Store
//	summary, err := a.Summary(ctx)
//	for _, found := range summary.Findings() {
//		log.Println(found.Check, found.Problem, found.Advice)
//	}
//	err = a.Pause(ctx, projection.ID{Name: "totals"})
//
// Summary is the state of the whole deployment, Status that of single projections, page by page. Both are JSON with
// stable names. Pause, Resume, Reset, Rebuild, Rename, Repartition, Swap and the like change projections while nodes
// run them. WaitFor waits for a projection, PauseTenant and RecoverTenant are for all projections of a tenant.
// MoveTenant moves a tenant to another store.
//
// A millrace.Runtime has all of these methods. Its Admin also knows what only a running runtime knows, without a delay:
// what its own node does. The comments of the fields name what other processes do not know.
package admin
