package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestErrorsHaveTheClassOfTheirCause(t *testing.T) {
	for _, c := range []struct {
		err    error
		stores Class // that of the store, empty if the store does not know the error
		want   Class
	}{
		{io.EOF, "", Handler},
		{io.EOF, Unclear, Unclear},
		{io.EOF, Infrastructure, Infrastructure},
		{event.ErrIncarnationChanged, Unclear, Infrastructure},
		{projection.ErrLockWait, Unclear, Infrastructure},
		{projection.ErrLeaseLost, Unclear, LeaseLost},
		{event.ErrNotPrimary, Infrastructure, Unclear},
		{tenancy.ErrRestored, Unclear, Configuration},
		{projection.ErrWithinTx, Unclear, Configuration},
		{projection.ErrTimeout, Unclear, Handler},
		{tenancy.ErrArchived, "", Configuration},
		{tenancy.ErrArchived, Infrastructure, Infrastructure},
		{tenancy.ErrDropping, "", Configuration},
		{context.Canceled, "", Infrastructure},
		{&Fault{Class: Interrupted, Err: io.EOF}, Unclear, Interrupted},
	} {
		byStore := func(f *Fault) bool {
			f.Class = c.stores
			if c.stores == "" {
				f.Class = Handler
			}
			return c.stores != ""
		}
		f := Classify(fmt.Errorf("read: %w", c.err), byStore)
		if f.Class != c.want || f.Probe != (c.want == Unclear) || !errors.Is(f, c.err) {
			t.Errorf("%v, which is %q for the store: %+v, want %q", c.err, c.stores, f, c.want)
		}
	}
	if f := Classify(nil, nil); f != nil {
		t.Errorf("no error: %+v", f)
	}
	f := Classify(&projection.EventError{Position: 7, Stack: "main.go:1", Err: io.EOF},
		func(*Fault) bool { return false })
	if f.Position != 7 || f.Stack != "main.go:1" {
		t.Errorf("the event's error: %+v", f)
	}
}

func TestFaultsOfHandlersAndOfTheStoreAreNotEachOthers(t *testing.T) {
	unmigrated := errors.New("not migrated")
	for class, want := range map[Class]struct{ ofHandler, ofStore Class }{
		Infrastructure: {Infrastructure, Infrastructure},
		LeaseLost:      {Handler, LeaseLost},
		Configuration:  {Handler, Configuration},
		Handler:        {Handler, Infrastructure},
		Unclear:        {Unclear, Infrastructure},
		Interrupted:    {Interrupted, Infrastructure},
		MissingObject:  {MissingObject, Configuration},
	} {
		if got := class.OfHandler(); got != want.ofHandler {
			t.Errorf("%s of a handler: %s", class, got)
		}
		f := &Fault{Class: class, Missing: unmigrated, Err: io.EOF}
		own := f.OfStore()
		if own.Class != want.ofStore || !errors.Is(own, io.EOF) ||
			errors.Is(own, unmigrated) != (class == MissingObject) || f.Class != class {
			t.Errorf("%s of the store: %+v", class, own)
		}
	}
	if f := (&Fault{Class: MissingObject, Err: io.EOF}).OfStore(); f.Err != io.EOF {
		t.Errorf("without a reason: %v", f)
	}
	if f := (*Fault)(nil).OfStore(); f != nil {
		t.Errorf("no fault: %v", f)
	}
}

func TestFaultOfAHandlerThatReturned(t *testing.T) {
	for class, want := range map[Class]bool{Unclear: true, Handler: false} {
		if f := Returned(class, io.EOF); f.Class != class || f.Probe != want || !f.Returned {
			t.Errorf("%+v", f)
		}
		if f := Ignored(class, io.EOF); f.Class != class || f.Probe != want || f.Returned ||
			!errors.Is(f, io.EOF) {
			t.Errorf("%+v", f)
		}
	}
	if f := Returned(Handler, projection.ErrWithinTx); f.Class != Configuration {
		t.Errorf("a write outside of the transaction: %+v", f)
	}
	if f := Returned(Handler, projection.Park(projection.ErrWithinTx)); f.Class != Handler {
		t.Errorf("one that asks to be parked: %+v", f)
	}
}

func TestFaultIsAnError(t *testing.T) {
	fault := &Fault{Class: Unclear, Err: io.EOF}
	if !errors.Is(fault, io.EOF) || fault.Error() != "EOF" || fault.Class.String() != "unclear" {
		t.Error(fault)
	}
}

func TestClassesThatMayCount(t *testing.T) {
	for class, want := range map[Class]bool{Infrastructure: false, LeaseLost: false, Configuration: false,
		Handler: true, Unclear: true, Interrupted: true, MissingObject: true} {
		if class.MayCount() != want {
			t.Errorf("%v: %v", class, !want)
		}
	}
}

func TestOnlyInfrastructureFaultsPass(t *testing.T) {
	for _, class := range []Class{Infrastructure, LeaseLost, Handler, Configuration, Unclear, Interrupted,
		MissingObject} {
		if got := (&Fault{Class: class}).Passes(); got != (class == Infrastructure) {
			t.Errorf("%s: %t", class, got)
		}
	}
	if (*Fault)(nil).Passes() {
		t.Error("no fault passes")
	}
}
