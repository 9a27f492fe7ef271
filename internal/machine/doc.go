// Package machine decides what a projection does next. It is pure code, without actors, database, clock, goroutines or random
// numbers: what happens to a projection is an input of Step, what the projection does about it are the effects.
//
//	m, effects = machine.Step(m, input, now)
//
// The shell around it (package actors) turns messages into inputs, and effects into work, timers and messages.
//
// # States and jobs
//
// A State is either at rest or Working. Working is the only state with a job under way, so there is never more than one. It
// names the state to which the projection returns, and the order that follows the job: to read the row again, to end a wait,
// or to release the lease. Waits are deadlines in the data of their states. One timer is armed for the earliest.
//
// The row of the database is the truth. Machine.Row mirrors it: a halt and open commands are columns of the row, so they
// outlive restarts, and the state follows from them. After a fault only the row shows how far the last batch came, so Load
// reads it before anything else begins.
//
// A paused projection has no state: its lease is free. The node drains the projection when it learns of a pause. A projection
// whose own read of the row shows a pause first takes that for the Drain. It reports DrainDone, and a later Drain has it report
// once more. A release without need costs only a new claim, so a row that is out of date does no harm.
//
// A batch is one job though it has several steps: it reads events, looks up parked streams, counts an attempt in quarantine,
// and calls the handler. The shell takes the steps in one goroutine, since each exchange of messages costs time. What each
// step is, and what follows it, is decided here, by Run for batches and by Replaying for dead letters.
//
// # Failures
//
// What becomes of a failure is decided once. FaultHistory decides whether a fault counts against its event. Count is the only
// place that counts an attempt: of an event in a batch, of one that a delivery rejects, and of a replay. Circumstances.Decide
// is the only place that decides what becomes of a counted failure, and a delivery asks it before it parks a rejected event.
//
// # Where to read
//
// step.go has Step, and next.go what decides which job begins; batch.go how batches end; failure.go what becomes of failures; load.go
// the row and the server; replays.go the commands on dead letters; run.go and replay.go the steps within jobs; state.go the
// states and what others see of them. testdata has scripts of everything that can happen, each with its whole trace.
//
// # Transitions
//
//	advancing
//	    done: applying, commanding, idle, loading
//	    unanswered: loading
//	applying
//	    done: advancing, applying, at-gate, commanding, event-wait, halting, idle, loading, moving, noting,
//	            outage-wait, publicizing, recording, released, unconfirmed
//	asking
//	    done: commanding, halting, loading, moving, released, retry-wait
//	    resumed: loading
//	at-gate
//	    drain: released
//	    gate-answered: applying, awaiting-tail, commanding, fault-wait, halted, halting, idle, loading,
//	            publicizing, released, unconfirmed
//	    resumed: loading
//	awaiting-tail
//	    command-pending, confirm, lease-deadline, tick: commanding
//	    drain: released
//	    started: commanding, halted, loading, released
//	    tail-advanced: applying, idle, loading, publicizing, unconfirmed
//	    tail-dropped: loading
//	    tail-failed: halting, publicizing
//	commanding
//	    done: applying, at-gate, awaiting-tail, commanding, event-wait, halted, halting, idle, loading,
//	            outage-wait, publicizing, released, retry-wait, unconfirmed
//	event-wait
//	    command-pending: commanding
//	    confirm, resumed, tail-advanced, tail-dropped: loading
//	    drain: released
//	    tail-failed: halting
//	    tick: commanding, loading
//	fault-wait
//	    drain: released
//	    resumed, tick: loading
//	feed-failed
//	    drain: released
//	    resumed, tail-dropped: loading
//	    tail-advanced: publicizing, unconfirmed
//	    tail-failed: halting
//	halted
//	    command-pending, lease-deadline: commanding
//	    confirm, tick: commanding, loading
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: loading
//	halting
//	    done: at-gate, commanding, event-wait, halted, halting, loading, released
//	idle
//	    command-pending, lease-deadline: commanding
//	    confirm: commanding, loading
//	    drain: released
//	    tail-advanced: applying, loading, unconfirmed
//	    tail-dropped: loading
//	    tail-failed: halting
//	    tick: advancing, commanding
//	loading
//	    done: applying, at-gate, awaiting-tail, commanding, event-wait, halted, halting, idle, loading, lost,
//	            misconfigured, outage-wait, publicizing, released, retry-wait, unconfirmed
//	    unanswered: loading, released
//	misconfigured
//	    drain: released
//	    resumed, tail-advanced, tail-dropped, tick: loading
//	    tail-failed: halting
//	moving
//	    done: applying, at-gate, commanding, event-wait, idle, loading, publicizing, released, unconfirmed
//	noting
//	    done: commanding, event-wait, halting, loading, outage-wait, released
//	outage-wait
//	    command-pending, confirm: commanding
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: loading
//	    tail-failed: halting
//	    tick: applying, awaiting-tail, commanding, publicizing, unconfirmed
//	publicizing
//	    done: applying, commanding, feed-failed, halting, loading, misconfigured, publicizing, released,
//	            unconfirmed
//	recording
//	    done: asking, at-gate, commanding, event-wait, halting, loading, moving, publicizing, released,
//	            retry-wait
//	retry-wait
//	    command-pending: commanding
//	    confirm: commanding, loading
//	    drain: released
//	    resumed, tail-advanced, tail-dropped: loading
//	    tail-failed: halting
//	    tick: applying, awaiting-tail, commanding, publicizing, unconfirmed
//	unconfirmed
//	    confirm, resumed, tail-advanced, tail-dropped: loading
//	    drain: released
//	    lease-deadline: applying, commanding, publicizing
//	    tail-failed: halting, publicizing
package machine
