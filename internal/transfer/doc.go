// Package transfer copies a store into another one. It knows no driver: the stores implement Source and Target.
//
// A copy never starts again from the beginning. Rows are copied in the order of their keys, and the target records the
// key of the last row together with the rows. A call after a crash continues there. Nothing changes in a closed source,
// so the rows of both calls fit together. The target takes no appends, and runs no projections of copied tenants, until
// all rows of all tenants were read again from both stores and compared.
package transfer
