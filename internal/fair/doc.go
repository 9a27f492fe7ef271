// Package fair decides which request gets the next free slot. It is pure: it has no goroutines, no clock and no locks,
// and the same calls always lead to the same grants.
//
// # The order
//
// A Scheduler is a tree: the node at the root, its tenants below, and the projections of a tenant below the tenant.
// Each place of the tree has its own requests, in the order of their arrival, which precede the requests of the places
// below. So the statements of the node itself precede all tenants, and the feed of a tenant precedes the tenant's
// projections. After such a grant, one request from below follows, so that a place's own requests cannot starve those
// below. Requests for several tenants wait beside the tenants, as if they were those of one more tenant, without its
// limit.
//
// Among the places below one place, slots are shared by weighted round robin, as start-time fair queueing does it
// (Goyal, Vin and Cheng, 1996). Each place has a turn on a virtual time. The earliest turn is granted, and then moves
// on by the inverse of the weight: a place of weight 3 has three turns while one of weight 1 has one. The virtual time
// is the turn that was granted last. A place that begins to wait continues at its own turn, but not before the virtual
// time. So an idle place collects no credit.
//
// # What follows
//
//   - No slot stays free while a request could have it.
//   - While two places wait, their grants, each number divided by the weight, never differ by more than the sum of the
//     inverse weights. So a waiting place of weight 1 sees at most w+1 grants of another place of weight w before its
//     own next one.
//   - A place that had no requests lately precedes places that were granted more than their share. A quiet tenant
//     overtakes a tenant that floods, however many requests that tenant has.
//   - A tenant that has as many slots as it may have is passed over until it releases one. It keeps its turn, but
//     collects no credit.
//
// The turn of a place outlives its requests only until the virtual time has passed it, or until nothing waits. Then the
// place is forgotten.
package fair
