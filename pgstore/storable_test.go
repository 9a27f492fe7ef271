package pgstore

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

func TestLongTextsAreCutAtARune(t *testing.T) {
	for _, unit := range []string{"xy", "ü", "€", "😀", "\x00", "a\xffb"} {
		for extra := range 8 {
			long := strings.Repeat("a", extra) + strings.Repeat(unit, maxTextBytes)
			got := storable(long)
			if len(got) > maxTextBytes || len(got) < maxTextBytes-utf8.UTFMax || !utf8.ValidString(got) || strings.Contains(got, "\x00") || !strings.HasSuffix(got, "bytes in all)") {
				t.Errorf("%q after %d bytes: %d bytes, %q", unit, extra, len(got), got[max(0, len(got)-50):])
			}
		}
	}
	if whole := strings.Repeat("x", maxTextBytes); storable(whole) != whole {
		t.Error("a text that is not too long is cut")
	}
}

func TestTextsInTheDatabaseHaveALimit(t *testing.T) {
	o := newOwner(t, 3)
	ctx, port := testContext(t), o.store.Port()
	long := strings.Repeat("€", 1<<20)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := port.RecordFailure(ctx, o.lease, projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 1, Err: errors.New(long)})
	must(err)
	must(port.SetFailed(ctx, o.lease, long))
	longest := func(what string) {
		t.Helper()
		n := one[int](t, o.store, `select greatest((select max(greatest(octet_length(failed), octet_length(last_error))) from millrace.projections),
			(select max(greatest(octet_length(error), octet_length(stack))) from millrace.dead_letters))`)
		if n > maxTextBytes || n < maxTextBytes-200 {
			t.Errorf("%s: the longest text has %d bytes", what, n)
		}
	}
	longest("a reason")
	must(port.Park(ctx, o.lease, projection.DeadLetter{Position: 1, Stream: "s", Version: 1, Type: "T", Error: long, Stack: long, Attempts: 1}, false))
	must(port.Halt(ctx, o.lease, long))
	longest("a dead letter and a halt")
}
