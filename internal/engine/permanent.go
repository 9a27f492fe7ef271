package engine

import (
	"errors"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/event"
)

// IsPermanent reports whether a handler's error says that its event can never be handled: the error is wrapped in
// backoff.Permanent, or the event's body does not decode.
func IsPermanent(err error) bool {
	var permanent *backoff.PermanentError
	var decode *event.DecodeError
	return errors.As(err, &permanent) || errors.As(err, &decode)
}
