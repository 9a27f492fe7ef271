package millrace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/health"
	"github.com/millrace-go/millrace/projection"
)

// Health reports whether this runtime works, and what an operator should check. If Live or Ready is false, the reasons
// are given.
type Health struct {
	// Live is false if the process should be restarted: a loop of the runtime makes no progress, or the runtime ended
	// by itself. It never depends on the database, so that an outage restarts nothing. It is true before Run and after
	// it.
	Live    bool     `json:"live"`
	NotLive []string `json:"notLive,omitempty"`
	// Ready reports that the runtime can claim leases and that settled marks move: heartbeats arrive, the pool works,
	// leases can be searched for, and events can be read. It is false before Run has registered the node, while the
	// runtime stops, and after Run. Faults that end within Config.LeaseDuration do not change it.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady,omitempty"`
	// Degraded reports that the runtime works, and that something needs attention, on this node or in the deployment.
	Degraded bool `json:"degraded"`
	// DegradedBy is what needs attention on this node: failed projections, open circuit breakers, missing objects,
	// projections that do not move although events wait, settled marks that are held back for more than 30 s, or a lost
	// session connection.
	DegradedBy []string `json:"degradedBy,omitempty"`
	// Deployment is what needs attention in the whole deployment: parked events, and projections that have failed, that
	// no living node owns, or that none registers. Each ready node has the same. Neither Deployment nor DegradedBy
	// decides Ready: NotReady alone does, and is about this node.
	Deployment []string `json:"deployment,omitempty"`
}

// figuresAge is how old the figures of the deployment may be. figuresLimit bounds the statements that read them, so
// that a probe is answered in time.
const (
	figuresAge   = 5 * time.Second
	figuresLimit = 500 * time.Millisecond
)

// Health returns the health of the runtime. It may be called every second. At most every 5 s, and only while the
// runtime is ready, it reads the figures of the deployment. Those are two statements, limited to half a second.
func (r *Runtime) Health(ctx context.Context) Health {
	h := Health{NotLive: r.notLive(), NotReady: r.notReady()}
	if deps := r.running(); deps != nil {
		h.DegradedBy = health.Degraded(deps.Registry.Vitals())
	}
	if len(h.NotReady) == 0 {
		h.Deployment = r.figures.reasons(ctx, r.Admin)
	}
	for _, reasons := range [][]string{h.NotLive, h.NotReady, h.DegradedBy, h.Deployment} {
		health.Short(reasons)
	}
	h.Live, h.Ready, h.Degraded = len(h.NotLive) == 0, len(h.NotReady) == 0, len(h.DegradedBy)+len(h.Deployment) > 0
	return h
}

// notLive returns why the process should be restarted.
func (r *Runtime) notLive() (reasons []string) {
	r.mu.Lock()
	deps, life := r.deps, r.life
	r.mu.Unlock()
	switch {
	case deps == nil && life.crash != nil:
		return []string{"the runtime ended by itself: " + life.crash.Error()}
	case deps == nil || life.stopping: // the grace period ends a stop
		return nil
	}
	v := deps.Registry.Vitals()
	for _, loop := range []actors.Loop{actors.SupervisorLoop, actors.NodeLoop, actors.SessionLoop} {
		// The session's loop waits for one call of the database at a time.
		if still := time.Since(v.Progress[loop]); still > r.standstill+r.tuning.Query {
			reasons = append(reasons, fmt.Sprintf("the loop of the %s has stood still for %v",
				loop, still.Round(time.Second)))
		}
	}
	for _, name := range v.Standing {
		reasons = append(reasons, "the "+name+" makes no progress and cannot be restarted")
	}
	return reasons
}

// notReady returns why the runtime cannot claim leases or move settled marks.
func (r *Runtime) notReady() (reasons []string) {
	r.mu.Lock()
	deps, life := r.deps, r.life
	r.mu.Unlock()
	switch {
	case deps == nil && life.crash != nil:
		return []string{"the runtime ended by itself: " + life.crash.Error()}
	case deps == nil && life.refused != nil:
		return []string{"the runtime could not start: " + life.refused.Error()}
	case deps == nil:
		return []string{"the runtime is not running"}
	case life.stopping:
		return []string{"the runtime is stopping: it ends its batches and releases its leases"}
	}
	return health.NotReady(deps.Registry.Vitals(), r.config.LeaseDuration)
}

// lifeOf is the state of the current run of a runtime, or the result of its last run.
type lifeOf struct {
	// stopping reports that the run ends. refused is why it did not start, and crash is why it ended by itself.
	stopping       bool
	refused, crash error
}

// figures are the figures of the deployment. One probe at a time reads them. Other probes use the figures that were
// read last.
type figures struct {
	mu       sync.Mutex
	reading  bool
	read     time.Time // when they were read, or could not be read
	findings []projection.Finding
	err      error
}

// reasons returns what needs attention in the deployment.
func (f *figures) reasons(ctx context.Context, a *admin.Admin) []string {
	f.mu.Lock()
	due := !f.reading && time.Since(f.read) >= figuresAge
	f.reading = f.reading || due
	f.mu.Unlock()
	if due {
		limited, cancel := context.WithTimeout(ctx, figuresLimit)
		findings, err := a.Findings(limited)
		cancel()
		f.mu.Lock()
		f.reading = false
		if ctx.Err() == nil { // else the prober went away
			f.read, f.err = time.Now(), err
		}
		if err == nil {
			f.findings = findings
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var reasons []string
	for _, found := range f.findings {
		reasons = append(reasons, found.Problem)
	}
	if f.err != nil {
		reasons = append(reasons, health.Because("the figures of the deployment cannot be read", f.err))
	}
	return reasons
}
