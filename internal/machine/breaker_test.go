package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"pgregory.net/rapid"
)

func counts(error) bool { return true }

// play plays a script on a breaker: f is a failure, p a batch that begins, a one that was answered, each at a second.
func play(t *testing.T, b *Breaker, script string) (opened, closed int) {
	t.Helper()
	start := time.Now()
	for word := range strings.FieldsSeq(script) {
		var step rune
		var second int
		if n, err := fmt.Sscanf(word, "%c%d", &step, &second); n != 2 || err != nil {
			t.Fatalf("word %q: %v", word, err)
		}
		now := start.Add(time.Duration(second) * time.Second)
		switch step {
		case 'f':
			if b.Failed(now) {
				opened++
			}
			if b.state == projection.BreakerOpen && !b.until.Equal(now.Add(30*time.Second)) {
				t.Errorf("%s: open until %v after %s", script, b.until.Sub(start), word)
			}
		case 'p':
			if probe := b.Probe(); probe != (b.state == projection.BreakerHalfOpen) {
				t.Errorf("%s: probe is %v when %s", script, probe, b.state)
			}
		case 'a':
			if b.Answered() {
				closed++
			}
		}
	}
	return opened, closed
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	const closed, open, half = projection.BreakerClosed, projection.BreakerOpen, projection.BreakerHalfOpen
	for script, want := range map[string]struct {
		state          projection.BreakerState
		opened, closed int
		inARow         int
		why            string
	}{
		"":                                   {closed, 0, 0, 0, ""},
		"f0 f1":                              {closed, 0, 0, 2, ""},
		"p0 f0 p1 f1 p2":                     {closed, 0, 0, 2, ""},
		"f0 f1 f2":                           {open, 1, 0, 3, "3 failures within 1m0s"},
		"f0 a1 f2 a3 f4":                     {open, 1, 0, 1, "3 failures within 1m0s"},
		"f0 f1 a2 f59":                       {open, 1, 0, 1, "3 failures within 1m0s"},
		"f0 f1 a2 f60":                       {closed, 0, 0, 1, ""},
		"f0 f1 a2 f60 f61":                   {closed, 0, 0, 2, ""},
		"f0 f1 a2 f60 f61 f62":               {open, 1, 0, 3, "3 failures within 1m0s"},
		"f0 f100 f200":                       {open, 1, 0, 3, "3 failures in a row"},
		"f0 f100 a101 f200 f300":             {closed, 0, 0, 2, ""},
		"f0 f1 f2 p32":                       {half, 1, 0, 3, "3 failures within 1m0s"},
		"f0 f1 f2 p5":                        {half, 1, 0, 3, "3 failures within 1m0s"},
		"f0 f1 f2 p32 p33":                   {half, 1, 0, 3, "3 failures within 1m0s"},
		"f0 f1 f2 p32 f33":                   {open, 1, 0, 4, "3 failures within 1m0s, and 1 since"},
		"f0 f1 f2 p32 f33 p70 f70":           {open, 1, 0, 5, "3 failures within 1m0s, and 2 since"},
		"f0 f1 f2 p32 a33":                   {closed, 1, 1, 0, "3 failures within 1m0s"},
		"f0 f1 f2 p32 a33 a34 p35":           {closed, 1, 1, 0, "3 failures within 1m0s"},
		"f0 f1 f2 p32 a33 f34 f35":           {closed, 1, 1, 2, "3 failures within 1m0s"},
		"f0 f1 f2 p9 f9 p40 a41 f50 f51 f52": {open, 2, 1, 3, "3 failures within 1m0s"},
	} {
		b := NewBreaker(engine.BreakerDefaults(projection.BreakerPolicy{IsOutage: counts, Failures: 3}))
		opened, wasClosed := play(t, &b, script)
		if b.state != want.state || opened != want.opened || wasClosed != want.closed || b.inARow != want.inARow || b.Why() != want.why {
			t.Errorf("%q: %s, opened %d times, closed %d times, %d in a row, why %q; want %+v", script, b.state, opened, wasClosed, b.inARow, b.Why(), want)
		}
	}
}

func TestNoCountsNoBreaker(t *testing.T) {
	for name, b := range map[string]Breaker{"zero": {}, "of a zero policy": NewBreaker(engine.BreakerDefaults(projection.BreakerPolicy{}))} {
		if b.Probe() || b.Answered() || b.state != "" {
			t.Errorf("%s: there is one, %s", name, b.state)
		}
	}
}

// TestBreakerIsWhatItsHistorySays holds the breaker against a model that remembers everything.
func TestBreakerIsWhatItsHistorySays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := engine.BreakerDefaults(projection.BreakerPolicy{IsOutage: counts, Failures: rapid.IntRange(1, 6).Draw(t, "failures"),
			Window: time.Duration(rapid.IntRange(1, 20).Draw(t, "window")), OpenFor: time.Duration(rapid.IntRange(1, 20).Draw(t, "wait"))})
		b := NewBreaker(policy)
		type failure struct {
			at  time.Time
			row int
		}
		var failures []failure // since it was closed last
		now, row, state := time.Now(), 0, projection.BreakerClosed
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "pause")))
			step := rapid.SampledFrom([]string{"fail", "fail", "answer", "probe"}).Draw(t, "step")
			var news, want bool
			switch step {
			case "fail":
				if state == projection.BreakerOpen {
					continue // the handler is not called then
				}
				row++
				failures = append(failures, failure{now, row})
				within := 0
				for _, f := range failures {
					if f.at.After(now.Add(-policy.Window)) {
						within++
					}
				}
				before := state
				if state == projection.BreakerHalfOpen || within >= policy.Failures || row >= policy.Failures {
					state = projection.BreakerOpen
				}
				news, want = b.Failed(now), before == projection.BreakerClosed && state == projection.BreakerOpen
				if state == projection.BreakerOpen && !b.until.Equal(now.Add(policy.OpenFor)) {
					t.Fatalf("step %d: open until %v, want %v", i, b.until, now.Add(policy.OpenFor))
				}
			case "answer":
				if want = state != projection.BreakerClosed; want {
					failures = nil
				}
				row, state, news = 0, projection.BreakerClosed, b.Answered()
			case "probe":
				if state == projection.BreakerOpen {
					state = projection.BreakerHalfOpen
				}
				news, want = b.Probe(), state == projection.BreakerHalfOpen
			}
			if b.state != state || news != want || b.inARow != row {
				t.Fatalf("step %d, %s: %s, %v, %d in a row; want %s, %v, %d", i, step, b.state, news, b.inARow, state, want, row)
			}
		}
	})
}
