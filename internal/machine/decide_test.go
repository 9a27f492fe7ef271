package machine

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestWhatIsNotToBeTriedAgain(t *testing.T) {
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
		if got := final(test.err); got != test.want {
			t.Errorf("%#v: final is %v", test.err, got)
		}
	}
}

func TestRejectionParksUnlessMoreIsAskedFor(t *testing.T) {
	for _, test := range []struct {
		onFailure projection.Action
		cause     error
		want      projection.Action
	}{
		{projection.ActionPark, io.EOF, projection.ActionPark},
		{projection.ActionSkip, io.EOF, projection.ActionPark},
		{projection.ActionParkStream, io.EOF, projection.ActionParkStream},
		{projection.ActionParkStream, projection.Skip(io.EOF), projection.ActionSkip},
	} {
		err := Rejection(&engine.Policy{OnFailure: test.onFailure}, test.cause)
		if got, asks := projection.RequestedAction(err); !asks || got != test.want || !errors.Is(err, io.EOF) {
			t.Errorf("%v of %v: %v, %v", test.onFailure, test.cause, got, err)
		}
	}
}

func TestDecisionsStopBeforeTheyParkTooMuch(t *testing.T) {
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
		"parked":                       {projection.ActionPark, Circumstances{Parked: 2}, projection.ActionPark, ""},
		"no room":                      {projection.ActionPark, Circumstances{Parked: 3}, projection.ActionStop, "3 events are parked"},
		"no room for the stream":       {projection.ActionParkStream, Circumstances{Parked: 4}, projection.ActionStop, "4 events are parked"},
		"a skipped one needs no room":  {projection.ActionSkip, Circumstances{Parked: 3}, projection.ActionSkip, ""},
		"too many failed":              {projection.ActionPark, Circumstances{Window: failures}, projection.ActionStop, "20 of the last 20"},
		"too many failed to skip one":  {projection.ActionSkip, Circumstances{Window: failures}, projection.ActionStop, "20 of the last 20"},
		"a retry is none of them":      {projection.ActionRetry, Circumstances{Window: failures, Parked: 3}, projection.ActionRetry, ""},
		"stopped, whatever there were": {projection.ActionStop, Circumstances{Window: failures}, projection.ActionStop, "attempt 9"},
	} {
		test.c.Policy, test.c.Answer = &policy, &test.action
		d := test.c.Decide(bad)
		if d.Action != test.want || (d.Halt != nil) != (test.halts != "") || d.Halt != nil && !strings.Contains(d.Halt.Error(), test.halts) {
			t.Errorf("%s: %v, %v", name, d.Action, d.Halt)
		}
	}
}
