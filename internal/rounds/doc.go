// Package rounds decides which tenants a node looks at in each of its rounds. It is pure code: what happened goes in,
// and what the node does next comes out.
//
//   - [Heads] polls the heads of tenants, to find events whose notification was lost.
//   - [Rows] makes the rows of the node's projections for tenants that lack them.
package rounds
