package machine

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cenkalti/backoff/v4"

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
