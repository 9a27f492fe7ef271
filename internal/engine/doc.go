// Package engine is what the actors of a runtime and its store share: leases, batches and faults, and Store, the port
// through which the actors reach a database.
package engine
