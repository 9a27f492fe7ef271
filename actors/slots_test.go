package actors

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestLimitsOfTenantsAreKeptOnlyWhileTheyAreInUse(t *testing.T) {
	s := NewSlots(4, 2, 1)
	s.Serve(1000)
	for i := range 1000 {
		release, err := s.batch(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	if n := len(s.batches.tenants); n != 0 {
		t.Errorf("the limits of %d tenants are kept", n)
	}
	first, err := s.batch(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.batch(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second batch of the tenant: %v", err)
	}
	got := make(chan func())
	go func() {
		second, err := s.batch(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		got <- second
	}()
	first()
	(<-got)()
	if n := len(s.batches.tenants); n != 0 {
		t.Errorf("the limits of %d tenants are kept", n)
	}
}
