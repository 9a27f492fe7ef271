package projection_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/projection"
)

func TestHandlersWishShowsThroughWrapping(t *testing.T) {
	for want, ask := range map[projection.Action]func(error) error{
		projection.ActionRetry: projection.Retry, projection.ActionPark: projection.Park,
		projection.ActionSkip: projection.Skip, projection.ActionStop: projection.Stop,
	} {
		if ask(nil) != nil {
			t.Errorf("%v: no error asks for nothing", want)
		}
		for name, err := range map[string]error{
			"plain": ask(io.EOF), "inside of At": projection.At(7, ask(io.EOF)), "outside of At": ask(projection.At(7, io.EOF)),
			"wrapped": fmt.Errorf("around: %w", ask(io.EOF)), "joined": errors.Join(errors.New("deadline"), ask(io.EOF)),
			"outermost": ask(projection.Park(projection.Stop(io.EOF))),
		} {
			if got, asks := projection.Asked(err); !asks || got != want {
				t.Errorf("%v, %s: asks for %v, %v", want, name, got, asks)
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%v, %s: hides its cause", want, name)
			}
			if at := projection.FailedPosition(err); (at == 7) != (name == "inside of At" || name == "outside of At") {
				t.Errorf("%v, %s: names position %d", want, name, at)
			}
		}
		if got := ask(io.EOF).Error(); got != "EOF" {
			t.Errorf("%v: reads %q", want, got)
		}
	}
	if _, asks := projection.Asked(io.EOF); asks {
		t.Error("an error that nobody wrapped asks for something")
	}
}

func TestVerdict(t *testing.T) {
	const park, retry, skip, stop = projection.ActionPark, projection.ActionRetry, projection.ActionSkip, projection.ActionStop
	says := func(a projection.Action) *projection.Action { return &a }
	for name, test := range map[string]struct {
		onFailure projection.Action
		err       error
		attempt   int
		final     bool
		answer    *projection.Action
		want      projection.Action
	}{
		"first failure":                       {attempt: 1, want: retry},
		"last retry":                          {attempt: 2, onFailure: skip, want: retry},
		"retries used up":                     {attempt: 3, want: park},
		"used up, skip":                       {attempt: 3, onFailure: skip, want: skip},
		"used up, stop":                       {attempt: 9, onFailure: stop, want: stop},
		"used up, retry":                      {attempt: 99, onFailure: retry, want: retry},
		"final":                               {attempt: 1, final: true, want: park},
		"final, skip":                         {attempt: 1, final: true, onFailure: skip, want: skip},
		"final, stop":                         {attempt: 1, final: true, onFailure: stop, want: stop},
		"final, retry":                        {attempt: 1, final: true, onFailure: retry, want: park},
		"Decide at the first failure":         {attempt: 1, answer: says(stop), want: stop},
		"Decide retries past the retries":     {attempt: 50, answer: says(retry), want: retry},
		"Decide over OnFailure":               {attempt: 50, onFailure: stop, answer: says(park), want: park},
		"Decide retries what is final":        {attempt: 1, final: true, answer: says(retry), want: park},
		"Decide skips what is final":          {attempt: 1, final: true, answer: says(skip), want: skip},
		"handler over OnFailure":              {attempt: 1, err: projection.Skip(io.EOF), onFailure: stop, want: skip},
		"handler over Decide":                 {attempt: 1, err: projection.Park(io.EOF), answer: says(skip), want: park},
		"handler retries past the retries":    {attempt: 50, err: projection.Retry(io.EOF), want: retry},
		"handler retries what it calls final": {attempt: 1, final: true, err: projection.Retry(io.EOF), want: retry},
		"handler stops":                       {attempt: 1, err: projection.Stop(io.EOF), want: stop},
	} {
		policy := projection.Policy{Retry: projection.RetryPolicy{MaxRetries: 2}, OnFailure: test.onFailure,
			Decide: func(context.Context, projection.Failure) projection.Action { panic("a verdict asks nobody") }}
		if test.err == nil {
			test.err = io.EOF
		}
		if got := policy.Verdict(projection.Failure{Attempt: test.attempt, Err: test.err}, test.final, test.answer); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestTooManyRecentFailures(t *testing.T) {
	for name, test := range map[string]struct {
		handled, failed, handledAfter int
		most                          float64
		want                          bool
	}{
		"the first":                        {0, 0, 0, 0.5, false},
		"nothing but failures, not yet":    {0, 18, 0, 0.5, false},
		"nothing but failures":             {0, 19, 0, 0.5, true},
		"few suffice at a low share":       {80, 19, 0, 0.1, true},
		"not below 20, at a lower share":   {80, 18, 0, 0.1, false},
		"half, after much success":         {1000, 49, 0, 0.5, false},
		"more than half":                   {1000, 50, 0, 0.5, true},
		"long ago":                         {0, 50, 90, 0.5, false},
		"out of sight":                     {0, 100, 100, 0, false},
		"all are allowed":                  {0, 5000, 0, -1, false},
		"more than all cannot fail":        {0, 5000, 0, 1, false},
		"a share of nothing is too much":   {1000, 19, 0, 0.0001, true},
		"success between does not hide it": {10, 60, 30, 0.5, true},
	} {
		var r projection.Recent
		r.Handled(test.handled)
		for range test.failed {
			r.Failed()
		}
		r.Handled(test.handledAfter)
		if failed, of, got := r.TooMany(test.most); got != test.want {
			t.Errorf("%s: too many is %v, with %d of %d", name, got, failed, of)
		}
	}
}

func TestRecentEventsAreTheLastHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r projection.Recent
		var naive []bool
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "fails") {
				for range rapid.IntRange(1, 12).Draw(t, "in a row") {
					r.Failed()
					naive = append(naive, true)
				}
				continue
			}
			n := rapid.IntRange(0, 250).Draw(t, "handled")
			r.Handled(n)
			naive = append(naive, make([]bool, n)...)
		}
		most := rapid.Float64Range(-0.2, 1).Draw(t, "most")
		count := func(events []bool) (failed, of int) {
			events = events[max(0, len(events)-100):]
			for _, f := range events {
				if f {
					failed++
				}
			}
			return failed, len(events)
		}
		failed, of := count(naive)
		if f, n := r.Share(); f != failed || n != of {
			t.Fatalf("%d of %d failed, want %d of %d", f, n, failed, of)
		}
		failed, of = count(append(naive, true))
		want := most >= 0 && failed >= 20 && float64(failed) > most*float64(of)
		if f, n, got := r.TooMany(most); f != failed || n != of || got != want {
			t.Fatalf("%d of %d failed, too many: %v; want %d of %d, %v", f, n, got, failed, of, want)
		}
	})
}

func TestReplayVerdict(t *testing.T) {
	decides := func(context.Context, projection.Failure) projection.Action { return projection.ActionStop }
	for _, c := range []struct {
		err       error
		permanent bool
		policy    projection.Policy
		want      projection.Action
	}{
		{errors.New("bad"), false, projection.Policy{OnFailure: projection.ActionSkip}, projection.ActionPark},
		{errors.New("bad"), false, projection.Policy{OnFailure: projection.ActionStop}, projection.ActionPark},
		{errors.New("bad"), false, projection.Policy{Decide: decides}, projection.ActionPark},
		{projection.Skip(errors.New("bad")), false, projection.Policy{OnFailure: projection.ActionStop}, projection.ActionSkip},
		{projection.Stop(errors.New("bad")), true, projection.Policy{OnFailure: projection.ActionSkip}, projection.ActionStop},
		{projection.Retry(errors.New("bad")), true, projection.Policy{OnFailure: projection.ActionSkip}, projection.ActionPark},
		{projection.ParkStream(errors.New("bad")), false, projection.Policy{}, projection.ActionPark},
		{errors.New("bad"), true, projection.Policy{OnFailure: projection.ActionSkip}, projection.ActionSkip},
		{errors.New("bad"), true, projection.Policy{OnFailure: projection.ActionStop}, projection.ActionStop},
		{errors.New("bad"), true, projection.Policy{OnFailure: projection.ActionRetry}, projection.ActionPark},
		{errors.New("bad"), true, projection.Policy{OnFailure: projection.ActionSkip, Decide: decides}, projection.ActionPark},
	} {
		if got := c.policy.ReplayVerdict(c.err, c.permanent); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
