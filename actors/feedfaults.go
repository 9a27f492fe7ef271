package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
)

// repairedEvery is how often a feed polls that its configuration has stopped.
const repairedEvery = 15 * time.Second

// feedFaults are the faults since the last poll that succeeded.
type feedFaults struct {
	count int
	last  *faults.Fault
	at    time.Time
	// waiting reports that the feed does not poll: it waits for the gate, for a delay, or for a repair of its
	// configuration.
	waiting       bool
	misconfigured bool
}

// onFailed is called after a poll that failed. The supervisor answers when the server can be reached.
func (f *feed) onFailed(ctx actor.Context, err error) {
	fault := f.deps.Plane.Classify(err)
	f.publish(func(e *FeedEntry) { *e = FeedEntry{Mark: f.window.Mark, Err: err, Polling: true} })
	f.forget()
	if fault.Class != faults.Configuration {
		f.faults = feedFaults{count: f.faults.count + 1, last: fault, at: time.Now(), waiting: true}
		ctx.Request(ctx.Parent(), &messages.AskGate{Fault: fault})
		return
	}
	for _, sub := range f.subs {
		ctx.Send(sub.pid, &messages.TailFailed{Err: err})
	}
	if !f.faults.misconfigured {
		f.log.Log(machine.StoppedLevel(err), "feed stopped by its configuration, retrying", zap.Error(err))
	}
	f.faults = feedFaults{waiting: true, misconfigured: true}
	f.polls.next = f.deps.After(ctx, repairedEvery, f.goOn)
}

// serverAnswers is called after a fault, when the server can be reached. waited reports that it could not be reached
// before. The first fault of an outage then costs no delay, so that all feeds continue when the server is back.
func (f *feed) serverAnswers(ctx actor.Context, waited bool) {
	if f.faults.last == nil {
		return
	}
	delay := FaultDelay(f.faults.count)
	switch {
	case !waited:
		f.log.Warn("fault not counted, retrying", zap.Stringer("class", f.faults.last.Class),
			zap.Int("attempt", f.faults.count),
			zap.Error(f.faults.last.Err))
	case f.faults.count > 1:
		delay = FaultDelay(f.faults.count-1) - time.Since(f.faults.at)
	default:
		delay = 0
	}
	f.polls.next = f.deps.After(ctx, delay, f.goOn)
}

// goOn ends a wait after a fault.
func (f *feed) goOn(ctx actor.Context) {
	f.faults.waiting = false
	f.poll(ctx)
}
