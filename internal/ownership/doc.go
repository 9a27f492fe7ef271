// Package ownership decides which leases a node claims and releases, and which nodes are dead. It is pure code.
package ownership
