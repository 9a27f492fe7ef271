// Package machine decides what a projection does next. It is pure code, without actors, database, clock, goroutines or
// random numbers: what happens to a projection is an input of Step, what the projection does about it are the effects.
//
//	effects = m.Step(input, now)
//
// The shell around it (package actors) turns messages into inputs, and effects into work, timers and messages.
//
// # States and jobs
//
// A State is either at rest or Working. Working is the only state with a job under way, so there is never more than
// one. It names the state to which the projection returns, and the order that follows the job: to read the row again,
// to end a wait, or to release the lease. Waits are deadlines in the data of their states. One timer is armed for the
// earliest.
//
// The row of the database is the truth. Machine.Lease mirrors it: a halt and open commands are columns of the row, so
// they outlive restarts, and the state follows from them. After a fault only the row shows how far the last batch came,
// so Load reads it before anything else begins.
//
// A paused projection has no state: its lease is free. The node drains the projection when it learns of a pause. A
// projection whose own read of the row shows a pause first takes that for the Drain. It reports Drained, and a later
// Drain has it report once more. A needless release costs only a new claim, so a row that is out of date does no harm.
//
// A batch is one job though it has several steps: it reads events, reads the parked streams unless they are in memory,
// counts an attempt in quarantine, and calls the handler. The shell takes the steps in one goroutine, since each
// exchange of messages costs time. What each step is, and what follows it, is decided here: by BatchRun for batches,
// and by CommandRun for dead letters.
//
// # Failures
//
// Each decision about a failure is made in one place. FaultHistory decides whether a fault counts against its event.
// Only policy.NextAttempt counts attempts: in batches, for events that deliveries reject, and in replays.
// policy.Circumstances decides alone what becomes of a counted failure, and a delivery asks it before it parks a
// rejected event.
//
// # Where to read
//
// step.go has Step, and next.go what decides which job begins; batch.go how batches begin and end; failure.go what
// becomes of failures; load.go reads of the row, and the server; replays.go the commands on dead letters; batchrun.go
// and replay.go the steps within jobs; state.go the states and what others see of them. Methods of step
// need the order that follows a job, or have effects (output.go). Methods of Machine need neither: rest.go has the
// states at rest, lease.go the lease and the position, replayqueue.go the replays; a few stand beside their only
// callers. testdata has scripts of everything that can happen, each with its whole trace.
//
// # Transitions
//
// For each state, the table has the inputs that leave it and the states that they lead to.
// Working goes by the name of its job.
//
//	advance
//	    done: apply, command, idle, load, released
//	    unanswered: load
//	apply
//	    done: advance, apply, at-gate, command, event-wait, halt, idle, load, move, note, outage-wait, record,
//	            released, unconfirmed, write-reason
//	ask
//	    done: command, halt, load, move, released, retry-wait
//	    resumed: load
//	at-gate
//	    drain: released
//	    resumed: load
//	    server-answers: apply, awaiting-tail, command, fault-wait, halt, halted, load, released, unconfirmed,
//	            write-reason
//	awaiting-tail
//	    command-pending, lease-deadline, tick: command
//	    drain: released
//	    revalidate, tail-dropped: load
//	    started: command, halted, load, released
//	    tail-advanced: apply, idle, load, unconfirmed, write-reason
//	    tail-failed: halt, write-reason
//	command
//	    done: advance, apply, at-gate, awaiting-tail, command, event-wait, halt, halted, idle, load,
//	            outage-wait, released, retry-wait, unconfirmed, write-reason
//	event-wait
//	    command-pending: command
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: load
//	    revalidate, tick: command, load
//	    tail-failed: halt
//	fault-wait
//	    drain: released
//	    resumed, tick: load
//	feed-failed
//	    drain: released
//	    resumed, tail-dropped: load
//	    tail-advanced: load, unconfirmed, write-reason
//	halt
//	    done: at-gate, command, event-wait, halt, halted, load, released, write-reason
//	halted
//	    command-pending, lease-deadline: command
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: load
//	    revalidate, tick: command, load
//	idle
//	    command-pending, lease-deadline: command
//	    drain: released
//	    revalidate, tail-dropped: load
//	    tail-advanced: apply, load, unconfirmed
//	    tail-failed: halt, write-reason
//	    tick: advance, command
//	load
//	    done: apply, at-gate, awaiting-tail, command, event-wait, halt, halted, idle, load, lost, misconfigured,
//	            outage-wait, released, retry-wait, unconfirmed, write-reason
//	    unanswered: load, released
//	misconfigured
//	    drain: released
//	    resumed, revalidate, tail-advanced, tail-dropped, tick: load
//	    tail-failed: halt
//	move
//	    done: apply, at-gate, command, event-wait, halt, idle, load, released, unconfirmed, write-reason
//	note
//	    done: command, event-wait, halt, load, outage-wait, released
//	outage-wait
//	    command-pending, revalidate: command
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: load
//	    tail-failed: halt
//	    tick: apply, command, unconfirmed, write-reason
//	record
//	    done: ask, at-gate, command, event-wait, halt, load, move, released, retry-wait, write-reason
//	retry-wait
//	    command-pending: command
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: load
//	    revalidate: command, load
//	    tail-failed: halt
//	    tick: apply, awaiting-tail, command, unconfirmed, write-reason
//	unconfirmed
//	    drain: released
//	    lease-deadline: apply, command, write-reason
//	    resumed, revalidate, tail-advanced, tail-dropped: load
//	    tail-failed: halt, write-reason
//	write-reason
//	    done: apply, command, feed-failed, halt, idle, load, misconfigured, released, unconfirmed, write-reason
package machine
