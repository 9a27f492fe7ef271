package projection_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestRequestedActionIsFoundThroughWrapping(t *testing.T) {
	for want, ask := range map[projection.Action]func(error) error{
		projection.ActionRetry: projection.Retry, projection.ActionPark: projection.Park,
		projection.ActionSkip: projection.Skip, projection.ActionStop: projection.Stop,
	} {
		if ask(nil) != nil {
			t.Errorf("%v: no error asks for nothing", want)
		}
		for name, err := range map[string]error{
			"plain": ask(io.EOF), "inside of At": projection.At(7, ask(io.EOF)),
			"outside of At": ask(projection.At(7, io.EOF)),
			"wrapped":       fmt.Errorf("around: %w", ask(io.EOF)),
			"joined":        errors.Join(errors.New("deadline"), ask(io.EOF)),
			"outermost":     ask(projection.Park(projection.Stop(io.EOF))),
		} {
			if got, asks := projection.RequestedAction(err); !asks || got != want {
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
	if _, asks := projection.RequestedAction(io.EOF); asks {
		t.Error("an error that is not wrapped requests an action")
	}
}
