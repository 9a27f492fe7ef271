package tests_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// because reports whether a text contains one of the reasons.
func because(reasons []string, text string) bool {
	return slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, text) })
}

// healthy waits until a runtime is ready, and not degraded.
func healthy(b *kit.Bundle, rt *millrace.Runtime) {
	b.T.Helper()
	b.Eventually("the runtime is ready", func() bool { h := rt.Health(b.Ctx); return h.Ready && !h.Degraded })
}

func TestHealthFollowsTheLifeOfARuntime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Runtime(kit.Quick, b.Recorders("p")...)
		for range 2 { // it can run again
			if h := rt.Health(b.Ctx); !h.Live || h.Ready || h.Degraded ||
				!because(h.NotReady, "the runtime is not running") {
				t.Errorf("while it does not run: %+v", h)
			}
			stop := b.Start(rt)
			healthy(b, rt)
			if h := rt.Health(b.Ctx); !h.Live || len(h.NotLive)+len(h.NotReady)+len(h.DegradedBy) > 0 {
				t.Errorf("while it runs: %+v", h)
			}
			stop()
		}
	})
}

func TestRuntimeIsNotReadyFromTheBeginOfItsStop(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		began, release := make(chan struct{}), make(chan struct{})
		rt := b.Runtime(millrace.Config{GracePeriod: time.Minute},
			millrace.Projection{Name: "p", Handler: b.Store.Batch(
				func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					close(began)
					<-release
					return tx.Record(ctx, "p", events...)
				})})
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		b.Append("s", 1)
		<-began
		b.Eventually("the runtime is ready", func() bool { return rt.Health(b.Ctx).Ready })
		cancel()
		b.Eventually("the runtime is not ready", func() bool { return !rt.Health(b.Ctx).Ready })
		if h := rt.Health(b.Ctx); !h.Live || !because(h.NotReady, "stopping") || len(done) > 0 {
			t.Errorf("while a batch ends: %+v", h)
		}
		close(release)
		b.Must(<-done)
		b.Verify("p")
		if h := rt.Health(b.Ctx); !h.Live || h.Ready {
			t.Errorf("after the end: %+v", h)
		}
	})
}

func TestWhatNeedsAttentionDegradesARuntimeThatStaysReady(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := func(name string) millrace.Handler {
			return b.Store.Batch(kit.FailsAt(name, kit.Any, kit.Fails))
		}
		projections := append(b.Recorders("healthy"),
			millrace.Projection{
				Name: "parking", Retry: kit.Soon(0), MaxFailureShare: projection.NoLimit, Handler: fails("parking"),
			},
			millrace.Projection{
				Name: "failed", Retry: kit.Soon(0), OnFailure: projection.ActionStop, Handler: fails("failed"),
			},
			millrace.Projection{
				Name: "open", Breaker: projection.BreakerPolicy{Failures: 1,
					IsOutage: func(error) bool { return true }}, Handler: fails("open"),
			})
		rt := b.Running(kit.Quick, projections...)
		healthy(b, rt)
		b.Append("s", 1)
		here, deployment := []string{"failed projections: default/failed", "open circuit breaker: default/open"},
			[]string{"parked events: 1", "default/parking"}
		var h millrace.Health
		b.Eventually("the runtime is degraded", func() bool {
			h = rt.Health(b.Ctx)
			return !slices.ContainsFunc(here, func(text string) bool { return !because(h.DegradedBy, text) }) &&
				!slices.ContainsFunc(deployment, func(text string) bool { return !because(h.Deployment, text) })
		})
		if !h.Live || !h.Ready || !h.Degraded || len(h.DegradedBy) != 2 || len(h.Deployment) != 1 {
			t.Errorf("%+v", h)
		}
	})
}

// Every node's health names the projections that no living node registers, and those that have failed on any node.
func TestHealthShowsProjectionsThatNoNodeRuns(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 1)
		stop := b.Start(b.Runtime(kit.Quick, append(b.Recorders("removed"),
			millrace.Projection{Name: "halted", Retry: kit.Soon(0),
				OnFailure: projection.ActionStop,
				Handler:   b.Store.Batch(kit.FailsAt("halted", kit.Any, kit.Fails))})...))
		b.Eventually("the projections have run", func() bool {
			rt := b.Runtime(kit.Quick, b.Recorders("watcher")...)
			return b.Status(rt, "removed").Checkpoint == 1 && b.Status(rt, "halted").State == admin.StateFailed
		})
		stop()
		rt := b.Running(kit.Quick, b.Recorders("new")...)
		for _, text := range []string{"no living node registers: 1", "wait until they are resumed: 1"} {
			b.Eventually(text,
				func() bool { h := rt.Health(b.Ctx); return h.Ready && h.Degraded && because(h.Deployment, text) })
		}
		// It is no fault of this node.
		status, body := probe(t, rt, http.MethodGet, "/readyz")
		var answer kit.Answer
		b.Must(json.Unmarshal([]byte(body), &answer))
		if status != http.StatusOK || len(rt.Health(b.Ctx).DegradedBy)+len(answer.Degraded)+len(answer.Reasons) > 0 ||
			!because(answer.Deployment, "no living node registers: 1") {
			t.Errorf("/readyz: %d %s", status, body)
		}
		// Other processes see the same.
		found, err := newAdmin(b).Findings(b.Ctx)
		b.Must(err)
		var problems []string
		for _, f := range found {
			problems = append(problems, f.Problem)
		}
		if !slices.Equal(problems, answer.Deployment) || len(problems) != 2 {
			t.Errorf("findings %q, and the probe names %q", problems, answer.Deployment)
		}
	})
}

// stuckCore is a log that blocks a loop of the runtime, as a full pipe does.
type stuckCore struct {
	zapcore.Core
	message string
	stuck   chan struct{}
	once    *sync.Once
	release chan struct{}
}

func (c stuckCore) With([]zapcore.Field) zapcore.Core { return c }
func (c stuckCore) Enabled(zapcore.Level) bool        { return true }

func (c stuckCore) Check(entry zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message == c.message {
		c.once.Do(func() { close(c.stuck) })
		<-c.release
	}
	return to
}

func TestRuntimeWhoseLoopStandsStillIsNotLive(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		core := stuckCore{
			Core: zapcore.NewNopCore(), message: "leases claimed", stuck: make(chan struct{}), once: new(sync.Once),
			release: make(chan struct{}),
		}
		config := kit.Tuned(kit.Quick, func(s *tuning.Settings) { s.Query = time.Second })
		config.Logger = zap.New(core)
		rt := b.Runtime(config, b.Recorders("p")...)
		stop := b.Start(rt)
		<-core.stuck
		var h millrace.Health
		b.Eventually("the runtime is not live", func() bool { h = rt.Health(b.Ctx); return !h.Live })
		if len(h.NotLive) != 1 || !because(h.NotLive, "the loop of the node has stood still for 3") {
			t.Errorf("%+v", h)
		}
		if status, body := probe(t, rt, http.MethodGet, "/livez"); status != http.StatusServiceUnavailable ||
			!strings.Contains(body, `{"live":false,"reasons":["the loop`) {
			t.Errorf("/livez: %d %s", status, body)
		}
		close(core.release)
		healthy(b, rt)
		if h := rt.Health(b.Ctx); !h.Live {
			t.Errorf("afterwards: %+v", h)
		}
		stop()
	})
}

// probe asks the handler, and returns its status and body.
func probe(t *testing.T, rt *millrace.Runtime, method, path string) (status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	millrace.HealthHandler(rt).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return answer.Code, answer.Body.String()
}

func TestHealthHandlerAnswersProbes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Runtime(kit.Quick, b.Recorders("p")...)
		ask := func(method, path string, want int, says string) {
			t.Helper()
			status, body := probe(t, rt, method, path)
			if status != want || strings.TrimSpace(body) != says || want < 400 && !json.Valid([]byte(body)) {
				t.Errorf("%s %s: %d %s, want %d %s", method, path, status, body, want, says)
			}
		}
		ask("GET", "/livez", 200, `{"live":true}`)
		ask("GET", "/readyz", 503, `{"ready":false,"reasons":["the runtime is not running"]}`)
		b.Start(rt)
		healthy(b, rt)
		ask("GET", "/readyz", 200, `{"ready":true}`)
		ask("HEAD", "/internal/health/readyz", 200, `{"ready":true}`)
		ask("GET", "/healthz", 404, "404 page not found")
		ask("POST", "/livez", 405, "the method must be GET or HEAD")
	})
}

func TestTerminatedProcessEndsItsBatchAndReleasesItsLeases(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		p := b.Probe()
		p.Becomes(http.StatusOK, "")
		p.Block()
		p.Says("blocked")
		p.Becomes(http.StatusOK, "")
		p.Terminate()
		p.Becomes(http.StatusServiceUnavailable, "stopping")
		p.Continue()
		if code := p.End(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		rt := b.Runtime(kit.Quick, b.Recorders("p")...)
		b.Verify("p")
		held, free := b.Owners(rt)
		if status := b.Status(rt, "p"); len(held) != 0 || free != 1 || status.Owner != "" || status.Checkpoint != 1 {
			t.Errorf("nodes %v, %d free leases, %+v", held, free, status)
		}
	})
}
