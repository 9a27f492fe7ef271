// Package actors has the node, the listener, the operator, the feeds and the projections of a runtime, and the one
// shell around them. It is part of the engine and promises no compatibility.
//
// # Who is authoritative
//
//	which leases does this node hold?     the node, by its ownership.Table; it claims, drains and releases them
//	when does a node search or poll?      ownership.Search and package internal/rounds; the node only carries that out
//	which actors run?                     the supervisor, as the node asks
//	which rebuilds and swaps run?         the operator, fenced by the epoch of the operation
//	is the session connection up?         the listener; it also sends the heartbeats and finds dead nodes
//	how far is a tenant settled?          the tenant's feed, by an engine.TailPoller of the store
//	what does a projection do next?       its machine (package internal/machine); the actor only carries that out
//	is a lease lost, may a batch commit?  the database alone
//	does the server answer?               the supervisor's gate, by a probe
//
// Messages between them pass through the supervisor, so that each can be restarted without the others. Only a feed and
// its projections talk directly, and are restarted together. Wakes of feeds go by the Router, and answers of the node
// go straight to the projection that asked. Messages about a lease carry its row and epoch, and those about an earlier
// epoch are dropped. A restarted node gets the projections that run. It reads from the database which leases it owns,
// and asks for the difference. What status, health and waits need is published in the Registry.
//
// Receive never blocks. Work on the database runs in a goroutine, and what follows from it is called in the actor
// (Deps.Go). A restarted actor has another name, so work of the earlier one has no effect on it.
//
// # An event from append to checkpoint
//
//	../pgstore/append.go      commits the event
//	../internal/eventlog      wakes.go wakes the feed of this process; ../pgstore/notify.go notifies the others. Of a file,
//	                          ../sqlitestore/seencommits.go finds the commits of other processes
//	listener.go, router.go    pass the notification to the feed; heads.go finds events without one (../internal/rounds)
//	feed.go                   settles the tail and sends its window (../internal/window) to the tenant's projections
//	projection.go             turns the message into an input of the machine
//	../internal/machine       decides on the batch (next.go) and its steps (batchrun.go)
//	worker.go                 waits for a slot (limiter.go), takes the steps and calls the handler
//	../pgstore/batch.go       runs the handler's transaction, and advances the checkpoint under the fence
//	checkpoints.go            advances checkpoints over events that their projections do not select
//
// # A failure from handler to dead letter
//
//	../internal/usercode      turns panics, timeouts and abandoned handlers into errors
//	../pgstore/batchcall.go   says whose fault a handler's error is (../internal/engine/faults, called.go)
//	examine.go                classifies other errors (../pgstore/classify.go), and probes the server if needed (prober.go)
//	../internal/machine       decides: faulthistory.go whether it counts, sizer.go how the batch is narrowed, failure.go
//	                          what follows; ../internal/policy counts the attempt and applies the policy
//	worker.go                 records the attempt, and parks, skips or halts; examine.go calls the FailureHandler
//	../internal/control       writes the dead letter and advances the checkpoint in one transaction (park.go)
//	../supervisor/gate.go     holds back what failed because the server is unreachable
//
// # A command on dead letters, from Replay to its end
//
//	../internal/deadletters   inserts the command (../internal/control, command.go), which notifies, and waits for it
//	listener.go, node.go      pass the notification on; ../internal/ownership (orders.go) reads which command is open
//	../internal/machine       decides when it may run (replays.go), and on its steps (replay.go)
//	command.go                takes the steps; the event is applied as in a batch, which also resolves the dead letter
//
// # A takeover of a dead node
//
//	listener.go, peers.go     find that a session lock is free (../internal/ownership, deathwatch.go) and mark the node dead.
//	                          The notification of that, which this node gets too, brings the next look at the fleet
//	node.go, search.go        search for free leases; ../internal/ownership (search.go, balance.go) says which to claim
//	claim.go                  makes missing rows, reads and claims, outside of the actor
//	../internal/ownership     table.go says which projections run; ../supervisor/children.go starts their actors
//	projection.go             adopts the row (../internal/machine, load.go) and begins its first batch as above
//
// # A rebuild or a swap, from the call to its end
//
//	../admin/rebuild.go       inserts the operation (../internal/control, operation.go), which notifies, and waits for it
//	operator.go               takes it; swap.go waits until a new version is near the old one
//	../internal/control       Hold makes the owners release their leases, as orders of users do (node.go, leases.go)
//	operator.go               runs the hook and the change in one transaction (RunOperation), which releases the hold
//	search.go                 claims the leases again
package actors
