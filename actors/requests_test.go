package actors

import (
	"slices"
	"testing"
)

func TestRequestsDuringAStatementShareTheNextOne(t *testing.T) {
	t.Parallel()
	var r requests[int]
	for i, want := range []bool{true, false, false} {
		if first := r.add(i); first != want {
			t.Errorf("request %d begins a statement: %v", i, first)
		}
	}
	if got := r.next(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the first statement has %v", got)
	}
	if r.add(3) {
		t.Error("a request begins a statement while another one is in progress")
	}
	if got := r.next(); !slices.Equal(got, []int{3}) {
		t.Errorf("the second statement has %v", got)
	}
	if got := r.next(); len(got) != 0 {
		t.Errorf("the third statement has %v", got)
	}
	if !r.add(4) {
		t.Error("a request begins no statement although none is in progress")
	}
}
