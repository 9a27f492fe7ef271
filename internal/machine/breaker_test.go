package machine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func counts(error) bool { return true }

// play plays a script on a breaker, one letter a second: f is a failure, p the begin of a batch, and a the answer of a
// batch.
// It checks that the breaker before each step is left unchanged.
func play(t *testing.T, b *Breaker, script string) (_ *Breaker, opened, closed int) {
	t.Helper()
	start := time.Now()
	for word := range strings.FieldsSeq(script) {
		var step rune
		var second int
		if n, err := fmt.Sscanf(word, "%c%d", &step, &second); n != 2 || err != nil {
			t.Fatalf("word %q: %v", word, err)
		}
		now := start.Add(time.Duration(second) * time.Second)
		before, was := b, *b
		was.recent = slices.Clone(b.recent)
		switch step {
		case 'f':
			var opens bool
			b, opens = b.Failed(now)
			if opens {
				opened++
			}
			if b.state == projection.BreakerOpen && !b.until.Equal(now.Add(30*time.Second)) {
				t.Errorf("%s: open until %v after %s", script, b.until.Sub(start), word)
			}
		case 'p':
			b = b.Probe()
			if b.state == projection.BreakerOpen {
				t.Errorf("%s: still open at %s", script, word)
			}
		case 'a':
			b = b.Answered()
			if before.state != b.state {
				closed++
			}
		}
		was.policy.IsOutage, before.policy.IsOutage = nil, nil
		if !reflect.DeepEqual(was, *before) {
			t.Errorf("%s: %s changed the breaker that other machines share: %+v, was %+v", script, word, *before, was)
		}
	}
	return b, opened, closed
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
		b, opened, wasClosed := play(t, b, script)
		if b.state != want.state || opened != want.opened || wasClosed != want.closed || b.inARow != want.inARow ||
			b.Why() != want.why {
			t.Errorf("%q: %s, opened %d times, closed %d times, %d in a row, why %q; want %+v", script, b.state, opened,
				wasClosed, b.inARow, b.Why(), want)
		}
	}
}

func TestPolicyWithoutIsOutageHasNoBreaker(t *testing.T) {
	if b := NewBreaker(engine.BreakerDefaults(projection.BreakerPolicy{})); b != nil || b.Probe() != nil ||
		b.Answered() != nil || b.State() != "" {
		t.Errorf("there is one: %+v", b)
	}
}
