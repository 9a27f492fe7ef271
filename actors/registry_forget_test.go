package actors

import (
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestRegistryForgetsTenantsThatAreGone(t *testing.T) {
	r := newRegistry()
	gone, runs, other := projection.ID{Tenant: "a", Name: "gone"}, projection.ID{Tenant: "a", Name: "runs"},
		projection.ID{Tenant: "b", Name: "gone"}
	for _, id := range []projection.ID{gone, runs, other} {
		r.publish(id, func(e *ProjectionEntry) { e.Applied = 7 })
	}
	r.withdraw(gone)
	r.withdraw(other)
	r.forget([]string{"a", "never there"})
	if _, kept := r.projections[gone]; kept {
		t.Error("a projection of a tenant that is gone is kept")
	}
	if r.projections[other] == nil || r.projections[other].Applied != 7 {
		t.Error("a projection of another tenant is forgotten")
	}
	if _, here := r.Get(runs); !here {
		t.Error("a projection that has not ended yet is forgotten")
	}
	r.publish(runs, func(*ProjectionEntry) {}) // it drains
	r.forget([]string{"c"})
	r.withdraw(runs)
	if _, kept := r.projections[runs]; kept {
		t.Error("a projection that ended after its tenant was removed is kept")
	}
	r.publish(runs, func(*ProjectionEntry) {})
	r.withdraw(runs)
	if r.projections[runs] == nil {
		t.Error("a projection of a tenant that came back is forgotten")
	}
}
