// Package actors has the node, the listener, the feeds and the projections of a runtime, and the one shell around them.
// It is part of the engine and promises no compatibility.
//
// # Who is authoritative
//
//	which leases does this node hold?     the node, by its ownership.Table; it claims, drains and releases them
//	when does a node search or poll?      ownership.Search and package internal/rounds; the node only carries that out
//	which actors run?                     the supervisor, as the node asks
//	is the session connection up?         the listener; it also sends the heartbeats and finds dead nodes
//	how far is a tenant settled?          the tenant's feed, by an engine.Tail of the store
//	what does a projection do next?       its machine (package internal/machine); the actor only carries that out
//	is a lease lost, may a batch commit?  the database alone
//	does the server answer?               the supervisor's gate, by a probe
//
// Messages between them pass through the supervisor, so that each can be restarted without the others. Only a feed and
// its projections talk directly, and are restarted together. Messages about a lease carry its row and epoch, and those
// about an earlier epoch are dropped. A restarted node gets the projections that run. It reads from the database which
// leases it owns, and asks for the difference. What status, health and waits need is published in the Registry.
//
// Receive never blocks. Work on the database runs in a goroutine, and what follows from it is called in the actor
// (Deps.Run). A restarted actor has another name, so work of the earlier one has no effect on it.
//
// # An event from append to checkpoint
//
//	../pgstore/append.go      commits the event and wakes the tenant's feed, here or by a notification
//	listener.go, router.go    pass the notification to the feed; heads.go finds events without one (../internal/rounds)
//	feed.go                   settles the tail and sends its window (../internal/window) to the tenant's projections
//	projection.go             turns the message into an input of the machine
//	../internal/machine       decides on the batch (next.go) and its steps (run.go)
//	worker.go                 waits for a slot (limiter.go), takes the steps and calls the handler
//	../pgstore/batch.go       runs the handler's transaction, and advances the checkpoint under the fence
//	checkpoints.go            advances checkpoints over events that their projections do not select
//
// # A failure from handler to dead letter
//
//	../internal/usercode      turns panics, timeouts and abandoned handlers into errors
//	examine.go                classifies the error (../pgstore/classify.go), and probes the server if needed (prober.go)
//	../internal/machine       decides: batch.go narrows the batch, failure.go counts the attempt, decide.go applies the policy
//	worker.go                 records the attempt, calls the FailureHandler, and parks, skips or halts
//	../internal/control       writes the dead letter and advances the checkpoint in one transaction (park.go)
//	command.go                takes the steps of replays and discards
//	../supervisor/gate.go     holds back what failed because the server is unreachable
package actors
