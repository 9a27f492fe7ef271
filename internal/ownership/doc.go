// Package ownership decides which leases a node claims, runs and releases, and which nodes are dead. It is pure code:
// what happened goes in, and what the node does next comes out.
//
//   - [Balance] shares the leases among the nodes.
//   - [Table] is what one node knows of the leases that it holds.
//   - [Search] says when a node searches for leases to claim, and what each search does.
//   - [Changes] says when a node handles tenants that notifications name, and [Orders] which orders of users it reads.
//   - [Heartbeats] says whether a node trusts the heartbeats of others, and [DeathWatch] finds out which nodes died.
//
// # The life of a lease in the database
//
// A lease is a row with an owner and an epoch. Each claim raises the epoch and commits synchronously. Each batch
// advances the checkpoint under the fence: the commit is refused unless owner and epoch are still the same.
//
//	                    claim: epoch + 1
//	        ┌───────────────────────────────────────┐
//	        │                                       ▼
//	    ┌──────┐    release, at the end of      ┌───────┐
//	──▶ │ free │ ◀───── the batch under way ─── │ owned │
//	    └──────┘                                └───────┘
//	        ▲                                       │ the owner's heartbeat runs out,
//	        │ pause: epoch + 1                      ▼ or its session lock vanishes
//	        │                                  ┌──────────┐  claim by another node:
//	        └───────────────────────────────── │ orphaned │ ─── epoch + 1, crash count + 1 ──▶ owned
//	                                           └──────────┘
//
// An orphaned lease looks like an owned one: its row names a node that is not alive. That node may only be frozen or
// cut off. It finds out when it reaches the server again, and until then the fence refuses its commits. No node claims
// the free lease of a paused projection.
//
// # A lease on its node
//
//	           claimed, or found in the database
//	                        │
//	                        ▼         share, pause, stop
//	                   ┌─────────┐     of the runtime       ┌──────────┐
//	                   │ running │ ───────────────────────▶ │ draining │
//	                   └─────────┘                          └──────────┘
//	                        │                                     │ drained
//	lost, by the projection │                                     ▼
//	or by the database      │                               ┌───────────┐
//	(also from the other    │                               │ releasing │ ⟲ again, if the release
//	phases)                 ▼                               └───────────┘   failed
//	                     retired ◀──────── released ──────────────┘
//
// # Who is authoritative
//
//	may this batch commit?              the row of the lease, in the transaction that commits
//	which leases does a node hold?      the database; between two reads the node's Table
//	what runs on a node?                the node; the supervisor starts and stops what the node says
//	is a node alive?                    nodes.expires_at, by the server's clock
//	did a node's process die?           its session lock, by DeathWatch; the result is written into nodes.expires_at
//	does a node trust its own leases?   its last heartbeat: until 0.9 of LeaseDuration after it was sent, by its own monotonic
//	                                    clock; a delivery without a transaction also ends with the session connection
//	does a node trust heartbeats?       Heartbeats: if its own was late by half a LeaseDuration, it declares no other node
//	                                    dead for one LeaseDuration: the cause may have delayed all heartbeats
//	who takes a free lease?             Balance on each node; the claim that locks the row first wins
//	should a projection run?            projections.desired_state
//
// No two machines' clocks are ever compared.
//
// A store in a file has one living node: the runtime that holds the file's owner lock. Other runtimes stand by, find no
// free leases, and wait for the lock. All leases of earlier nodes are orphaned when the next one registers. So there
// are no heartbeats to trust, no deaths to find out, and no shares.
package ownership
