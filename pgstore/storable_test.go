package pgstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
)

func TestTextsInTheDatabaseHaveALimit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	ctx, port := testContext(t), o.store.port()
	long := strings.Repeat("€", 1<<20)
	must(port.RecordFailure(ctx, o.lease, projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 1, Err: errors.New(long)}))(t)
	noError(t, port.SetFailed(ctx, o.lease, long))
	longest := func(what string) {
		t.Helper()
		n := one[int](t, o.store, `select greatest((select max(greatest(octet_length(failed_reason), octet_length(last_error))) from millrace.projections),
			(select max(greatest(octet_length(error), octet_length(stack))) from millrace.dead_letters))`)
		if n > wire.MaxText || n < wire.MaxText-200 {
			t.Errorf("%s: the longest text has %d bytes", what, n)
		}
	}
	longest("a reason")
	noError(t, port.Park(ctx, o.lease, projection.DeadLetter{Position: 1, Stream: "s", Version: 1, Type: "T", Error: long, Stack: long, Attempts: 1}, false))
	noError(t, port.Halt(ctx, o.lease, long))
	longest("a dead letter and a halt")
}
