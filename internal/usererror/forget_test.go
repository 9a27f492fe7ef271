package usererror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestForgottenErrorHasItsTextAndTheErrorsOfTheLibrary(t *testing.T) {
	first := Take(fmt.Errorf("around: %w: %w", errInside, context.Canceled))
	second := Take(errInside)
	err := fmt.Errorf("ours: %w", errors.Join(io.EOF, first, second))
	Forget(err)
	Forget(err)
	Forget(nil)
	for _, f := range []error{first, second} {
		if errors.Is(f, errInside) || errors.As(f, new(*behaved)) || errors.Is(f, Take(errInside)) || Open(f) != f {
			t.Errorf("%v is remembered", f)
		}
	}
	if !errors.Is(err, context.Canceled) || errors.Is(second, context.Canceled) || Open(err) != err ||
		err.Error() != "ours: EOF\naround: behaved 7: context canceled\nbehaved 7" {
		t.Errorf("it became %v", err)
	}
	if again := Take(fmt.Errorf("again: %w", first)); !errors.Is(again, context.Canceled) {
		t.Errorf("%v is not cancelled", again)
	}
}

func TestRecentErrorsAreTheLastOnes(t *testing.T) {
	var recent Recent
	var errs []error
	for range recentErrors + 2 {
		errs = append(errs, Take(errInside))
		for range 3 {
			recent.Add(fmt.Errorf("ours: %w", errors.Join(io.EOF, errs[len(errs)-1])))
		}
		recent.Add(errs[0])
		recent.Add(io.EOF)
	}
	for i, err := range errs {
		if errors.Is(err, errInside) != (i >= 2) {
			t.Errorf("error %d of %d: %v", i, len(errs), i < 2)
		}
	}
}
