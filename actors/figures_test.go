package actors

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

func TestFiguresAddUpTenantsAndPartitions(t *testing.T) {
	r := newRegistry()
	at := time.Unix(1000, 0)
	publish := func(tenant, name string, partition int, s machine.Status) {
		r.publish(projection.ID{Tenant: tenant, Name: name, Partition: partition},
			func(e *ProjectionEntry) { e.Status = s })
	}
	publish("a", "p", 1, machine.Status{Phase: machine.Live,
		Position: 7, Mark: 10, Oldest: at, Parked: 1, Breaker: projection.BreakerOpen})
	publish("a", "p", 2, machine.Status{Phase: machine.Live, Position: 4, Mark: 10, Oldest: at.Add(time.Second)})
	publish("b", "p", 0, machine.Status{Phase: machine.Waiting,
		Position: 10, Mark: 10, Oldest: at.Add(-time.Hour), Parked: 2, Breaker: projection.BreakerOpen})
	publish("b", "q", 0, machine.Status{})
	publish("c", "q", 0, machine.Status{Phase: machine.Failed})
	r.withdraw(projection.ID{Tenant: "c", Name: "q"})

	breakers := map[projection.BreakerState]int{projection.BreakerOpen: 2}
	none := map[projection.BreakerState]int{}
	all := &Figures{
		Name: "p", States: map[machine.Phase]int{machine.Live: 2, machine.Waiting: 1}, Breakers: breakers, Behind: 9,
		MostBehind: 6, Oldest: at, Parked: 3,
	}
	q := &Figures{Name: "q", States: map[machine.Phase]int{machine.Starting: 1}, Breakers: none}
	if got := r.Figures(false); !reflect.DeepEqual(got, []*Figures{all, q}) {
		t.Errorf("%+v %+v", got[0], got[1])
	}
	byTenant := r.Figures(true)
	if len(byTenant) != 3 || byTenant[0].Tenant != "a" || byTenant[0].Behind != 9 || byTenant[1].Tenant != "b" ||
		byTenant[1].Parked != 2 ||
		!byTenant[1].Oldest.IsZero() || byTenant[2].Name != "q" {
		t.Errorf("by tenant: %+v %+v", byTenant[0], byTenant[1])
	}
}

func BenchmarkFiguresOfManyProjections(b *testing.B) {
	r := newRegistry()
	for i := range 100_000 {
		r.publish(projection.ID{Tenant: fmt.Sprint("tenant", i/10), Name: fmt.Sprint("p", i%10)},
			func(e *ProjectionEntry) {
				e.Status = machine.Status{Phase: machine.Live, Position: 1, Mark: 1}
			})
	}
	for name, byTenant := range map[string]bool{"by name": false, "by tenant": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r.Figures(byTenant)
			}
		})
	}
}
