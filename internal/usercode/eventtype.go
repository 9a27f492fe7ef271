package usercode

import (
	"fmt"
	"reflect"

	"github.com/millrace-go/millrace/event"
)

// EventType returns the event type of a Go type, by its zero value.
func EventType[T event.Typed]() (eventType string, err error) {
	err = Protect(func() error {
		var zero T
		eventType = zero.EventType()
		return nil
	})
	if err != nil {
		err = fmt.Errorf("find the event type of %v by its zero value: %w", reflect.TypeFor[T](), err)
	}
	return eventType, err
}
