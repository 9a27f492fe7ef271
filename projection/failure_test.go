package projection_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

func TestAtNamesTheEventThroughWrapping(t *testing.T) {
	err := fmt.Errorf("around: %w", projection.At(7, io.EOF))
	if projection.FailedPosition(err) != 7 || !errors.Is(err, io.EOF) {
		t.Errorf("%v: position %d", err, projection.FailedPosition(err))
	}
	if projection.At(7, nil) != nil {
		t.Error("no error names an event")
	}
	if p := projection.FailedPosition(io.EOF); p != 0 {
		t.Errorf("position %d of an error that names none", p)
	}
	if p := projection.FailedPosition(projection.At(1, projection.At(2, io.EOF))); p != 1 {
		t.Errorf("position %d, want that of the outermost", p)
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	for _, err := range []error{
		&faults.Fault{Err: io.EOF}, &projection.EventError{Err: io.EOF}, &projection.HandlerError{Err: io.EOF},
	} {
		if !errors.Is(err, io.EOF) {
			t.Errorf("%T hides its cause", err)
		}
	}
}

func TestIDsSayWhichProjectionOfWhichTenant(t *testing.T) {
	for want, id := range map[string]projection.ID{
		"default/p": {Name: "p"}, "a/p": {Tenant: "a", Name: "p"}, "a/p/2": {Tenant: "a", Name: "p", Partition: 2},
	} {
		if got := engine.FullID(id).String(); got != want {
			t.Errorf("%+v is %q, want %q", id, got, want)
		}
	}
}

func TestIDsOfTheLongestTenantsDiffer(t *testing.T) {
	long := strings.Repeat("x", 199)
	one, two := projection.ID{Tenant: long + "1", Name: "p"}, projection.ID{Tenant: long + "2", Name: "p"}
	if one.String() == two.String() {
		t.Errorf("both are %s", one)
	}
}
