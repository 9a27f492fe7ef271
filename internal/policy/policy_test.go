package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestErrorsThatAreNotRetried(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{io.EOF, false},
		{projection.Retry(io.EOF), false},
		{backoff.Permanent(io.EOF), true},
		{fmt.Errorf("around: %w", projection.At(7, backoff.Permanent(io.EOF))), true},
		{errors.Join(io.EOF, backoff.Permanent(io.ErrUnexpectedEOF)), true},
		{projection.ErrProcessDied, true},
	} {
		if got := Final(test.err); got != test.want {
			t.Errorf("%#v: final is %v", test.err, got)
		}
	}
}

func TestRejectionParksUnlessAnotherActionIsRequested(t *testing.T) {
	for _, test := range []struct {
		onFailure projection.Action
		anyOrder  bool
		cause     error
		want      projection.Action
	}{
		{projection.ActionPark, false, io.EOF, projection.ActionPark},
		{projection.ActionSkip, false, io.EOF, projection.ActionParkStream},
		{projection.ActionSkip, true, io.EOF, projection.ActionPark},
		{0, false, io.EOF, projection.ActionParkStream},
		{0, true, io.EOF, projection.ActionPark},
		{0, true, projection.ParkStream(io.EOF), projection.ActionParkStream},
		{projection.ActionParkStream, false, projection.Park(io.EOF), projection.ActionPark},
		{projection.ActionParkStream, false, io.EOF, projection.ActionParkStream},
		{projection.ActionParkStream, false, projection.Skip(io.EOF), projection.ActionSkip},
	} {
		err := Rejection(&engine.Policy{OnFailure: test.onFailure, AnyOrder: test.anyOrder}, test.cause)
		if got, asks := projection.RequestedAction(err); !asks || got != test.want || !errors.Is(err, io.EOF) {
			t.Errorf("%v of %v: %v, %v", test.onFailure, test.cause, got, err)
		}
	}
}

func TestDecisionStopsTheProjectionAtItsLimits(t *testing.T) {
	var failures engine.FailureWindow
	for range 19 {
		failures.Failed()
	}
	bad := projection.Failure{Attempt: 9, Err: io.EOF}
	policy := engine.Policy{MaxFailureShare: 0.5, MaxParked: 3}
	for name, test := range map[string]struct {
		action projection.Action
		c      Circumstances
		want   projection.Action
		halts  string
	}{
		"parked": {projection.ActionPark, Circumstances{Parked: 2}, projection.ActionPark, ""},
		"no room": {
			projection.ActionPark, Circumstances{Parked: 3}, projection.ActionStop, "3 events that failed are parked",
		},
		"no room for the stream": {
			projection.ActionParkStream, Circumstances{Parked: 4}, projection.ActionStop,
			"4 events that failed are parked",
		},
		"a skipped one needs no room": {projection.ActionSkip, Circumstances{Parked: 3}, projection.ActionSkip, ""},
		"too many failed": {
			projection.ActionPark, Circumstances{FailureWindow: failures}, projection.ActionStop, "20 of the last 20",
		},
		"too many failed to skip one": {
			projection.ActionSkip, Circumstances{FailureWindow: failures}, projection.ActionStop, "20 of the last 20",
		},
		"a retry is none of them": {
			projection.ActionRetry, Circumstances{FailureWindow: failures, Parked: 3}, projection.ActionRetry, "",
		},
		"stopped, whatever there were": {
			projection.ActionStop, Circumstances{FailureWindow: failures}, projection.ActionStop, "attempt 9",
		},
	} {
		test.c.Policy, test.c.Answer = &policy, &test.action
		d := test.c.Decide(bad)
		if d.Action != test.want || (d.Halt != nil) != (test.halts != "") ||
			d.Halt != nil && !strings.Contains(d.Halt.Error(), test.halts) {
			t.Errorf("%s: %v, %v", name, d.Action, d.Halt)
		}
	}
}

func TestActionOfTheHandlerComesFirstThenTheAnswerThenThePolicy(t *testing.T) {
	const park, retry, skip, stop, stream = projection.ActionPark, projection.ActionRetry, projection.ActionSkip,
		projection.ActionStop, projection.ActionParkStream
	says := func(a projection.Action) *projection.Action { return &a }
	for name, test := range map[string]struct {
		onFailure projection.Action
		anyOrder  bool
		err       error
		attempt   int
		final     bool
		answer    *projection.Action
		want      projection.Action
	}{
		"first failure":                       {attempt: 1, want: retry},
		"last retry":                          {attempt: 2, onFailure: skip, want: retry},
		"retries used up":                     {attempt: 3, want: stream},
		"used up, park":                       {attempt: 3, onFailure: park, want: park},
		"used up, skip":                       {attempt: 3, onFailure: skip, want: skip},
		"used up, stop":                       {attempt: 9, onFailure: stop, want: stop},
		"used up, retry":                      {attempt: 99, onFailure: retry, want: retry},
		"final":                               {attempt: 1, final: true, want: stream},
		"final, park":                         {attempt: 1, final: true, onFailure: park, want: park},
		"final, skip":                         {attempt: 1, final: true, onFailure: skip, want: skip},
		"final, stop":                         {attempt: 1, final: true, onFailure: stop, want: stop},
		"final, retry":                        {attempt: 1, final: true, onFailure: retry, want: stream},
		"used up, any order":                  {attempt: 3, anyOrder: true, want: park},
		"final, any order":                    {attempt: 1, final: true, anyOrder: true, want: park},
		"final, retry, any order":             {attempt: 1, final: true, anyOrder: true, onFailure: retry, want: park},
		"used up, skip, any order":            {attempt: 3, anyOrder: true, onFailure: skip, want: skip},
		"FailureHandler at the first failure": {attempt: 1, answer: says(stop), want: stop},
		"FailureHandler retries past the retries": {attempt: 50, answer: says(retry), want: retry},
		"FailureHandler over OnFailure": {
			attempt: 50, onFailure: stop, answer: says(park), want: park,
		},
		"FailureHandler retries what is final": {
			attempt: 1, final: true, answer: says(retry), want: stream,
		},
		"FailureHandler retries, and events are parked alone": {
			attempt: 1, final: true, onFailure: park, answer: says(retry), want: park,
		},
		"FailureHandler skips what is final": {
			attempt: 1, final: true, answer: says(skip), want: skip,
		},
		"FailureHandler parks a stream in any order": {
			attempt: 1, anyOrder: true, answer: says(stream), want: stream,
		},
		"FailureHandler retries what is final in any order": {
			attempt: 1, anyOrder: true, final: true, answer: says(retry), want: park,
		},
		"handler parks a stream in any order": {
			attempt: 1, anyOrder: true, err: projection.ParkStream(io.EOF), want: stream,
		},
		"handler over OnFailure": {
			attempt: 1, err: projection.Skip(io.EOF), onFailure: stop, want: skip,
		},
		"handler over FailureHandler": {
			attempt: 1, err: projection.Park(io.EOF), answer: says(skip), want: park,
		},
		"handler retries past the retries": {
			attempt: 50, err: projection.Retry(io.EOF), want: retry,
		},
		"handler retries what is final": {
			attempt: 1, final: true, err: projection.Retry(io.EOF), want: retry,
		},
		"handler stops": {attempt: 1, err: projection.Stop(io.EOF), want: stop},
	} {
		policy := engine.Policy{Retry: projection.RetryPolicy{MaxAttempts: 3}, OnFailure: test.onFailure,
			AnyOrder: test.anyOrder, FailureHandler: neverCalled,
			MaxFailureShare: -1, MaxParked: -1}
		if test.err == nil {
			test.err = io.EOF
		}
		if test.final {
			test.err = backoff.Permanent(test.err)
		}
		c := Circumstances{Policy: &policy, Answer: test.answer}
		if got := c.Decide(projection.Failure{Attempt: test.attempt, Err: test.err}).Action; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestActionAfterAFailedReplay(t *testing.T) {
	const park, retry, skip, stop = projection.ActionPark, projection.ActionRetry, projection.ActionSkip,
		projection.ActionStop
	permanent := backoff.Permanent(io.EOF)
	for _, test := range []struct {
		err       error
		onFailure projection.Action
		asks      bool
		want      projection.Action
	}{
		{err: io.EOF, onFailure: skip, want: park},
		{err: io.EOF, onFailure: stop, want: park},
		{err: io.EOF, asks: true, want: park},
		{err: projection.Skip(io.EOF), onFailure: stop, want: skip},
		{err: projection.Stop(permanent), onFailure: skip, want: stop},
		{err: projection.Retry(permanent), onFailure: skip, want: park},
		{err: projection.ParkStream(io.EOF), want: park},
		{err: permanent, onFailure: skip, want: skip},
		{err: permanent, onFailure: stop, want: stop},
		{err: permanent, onFailure: retry, want: park},
		{err: permanent, onFailure: skip, asks: true, want: park},
	} {
		policy := engine.Policy{OnFailure: test.onFailure}
		if test.asks {
			policy.FailureHandler = neverCalled
		}
		if got := ReplayAction(&policy, test.err); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func neverCalled(context.Context, projection.Failure) projection.Action { panic("not called") }
