package engine

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

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
		"FailureHandler at the first failure": {attempt: 1, answer: says(stop), want: stop},
		"FailureHandler retries past the retries": {attempt: 50, answer: says(retry), want: retry},
		"FailureHandler over OnFailure":           {attempt: 50, onFailure: stop, answer: says(park), want: park},
		"FailureHandler retries what is final":    {attempt: 1, final: true, answer: says(retry), want: park},
		"FailureHandler skips what is final":      {attempt: 1, final: true, answer: says(skip), want: skip},
		"handler over OnFailure":                  {attempt: 1, err: projection.Skip(io.EOF), onFailure: stop, want: skip},
		"handler over FailureHandler":             {attempt: 1, err: projection.Park(io.EOF), answer: says(skip), want: park},
		"handler retries past the retries":        {attempt: 50, err: projection.Retry(io.EOF), want: retry},
		"handler retries what it calls final":     {attempt: 1, final: true, err: projection.Retry(io.EOF), want: retry},
		"handler stops":                           {attempt: 1, err: projection.Stop(io.EOF), want: stop},
	} {
		policy := Policy{Retry: projection.RetryPolicy{MaxAttempts: 3}, OnFailure: test.onFailure,
			FailureHandler: func(context.Context, projection.Failure) projection.Action { panic("a verdict asks nobody") }}
		if test.err == nil {
			test.err = io.EOF
		}
		if got := policy.Decide(projection.Failure{Attempt: test.attempt, Err: test.err}, test.final, test.answer); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestReplayVerdict(t *testing.T) {
	decides := func(context.Context, projection.Failure) projection.Action { return projection.ActionStop }
	for _, c := range []struct {
		err       error
		permanent bool
		policy    Policy
		want      projection.Action
	}{
		{errors.New("bad"), false, Policy{OnFailure: projection.ActionSkip}, projection.ActionPark},
		{errors.New("bad"), false, Policy{OnFailure: projection.ActionStop}, projection.ActionPark},
		{errors.New("bad"), false, Policy{FailureHandler: decides}, projection.ActionPark},
		{projection.Skip(errors.New("bad")), false, Policy{OnFailure: projection.ActionStop}, projection.ActionSkip},
		{projection.Stop(errors.New("bad")), true, Policy{OnFailure: projection.ActionSkip}, projection.ActionStop},
		{projection.Retry(errors.New("bad")), true, Policy{OnFailure: projection.ActionSkip}, projection.ActionPark},
		{projection.ParkStream(errors.New("bad")), false, Policy{}, projection.ActionPark},
		{errors.New("bad"), true, Policy{OnFailure: projection.ActionSkip}, projection.ActionSkip},
		{errors.New("bad"), true, Policy{OnFailure: projection.ActionStop}, projection.ActionStop},
		{errors.New("bad"), true, Policy{OnFailure: projection.ActionRetry}, projection.ActionPark},
		{errors.New("bad"), true, Policy{OnFailure: projection.ActionSkip, FailureHandler: decides}, projection.ActionPark},
	} {
		if got := c.policy.DecideReplay(c.err, c.permanent); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
