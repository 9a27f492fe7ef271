package projection_test

import (
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/projection"
)

// A handler requests an action for its event by the error that it returns, and names the event of a batch.
func ExamplePark() {
	cause := errors.New("no such product")
	for _, err := range []error{
		projection.Retry(cause), projection.Park(cause), projection.ParkStream(cause), projection.Skip(cause),
		projection.Stop(cause), projection.At(120, projection.Park(cause)),
	} {
		action, requested := projection.RequestedAction(err)
		fmt.Println(action, requested, projection.FailedPosition(err), errors.Is(err, cause))
	}
	_, requested := projection.RequestedAction(cause)
	fmt.Println("the policy of the projection decides:", !requested)
	// Output:
	// retry true 0 true
	// park true 0 true
	// park stream true 0 true
	// skip true 0 true
	// stop true 0 true
	// park true 120 true
	// the policy of the projection decides: true
}
