package sqlitestore

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
)

// Several processes run the projection of one file, any of them is killed at any time, and this one appends.
func TestKillsOfAnyProcessLeaveEachEventAppliedOnceInOrder(t *testing.T) {
	t.Parallel()
	ctx, store := testContext(t), newStore(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	mustExec(t, store, "create table counted (at integer primary key, name text, position integer)")
	var processes []*exec.Cmd
	start := func() {
		cmd := child(ctx, "run", store.path)
		noError(t, cmd.Start())
		processes = append(processes, cmd)
	}
	kill := func(i int) {
		noError(t, processes[i].Process.Kill())
		_ = processes[i].Wait()
		processes = slices.Delete(processes, i, i+1)
	}
	t.Cleanup(func() {
		for len(processes) > 0 {
			kill(0)
		}
	})
	for range 3 {
		start()
	}
	flow, stop := context.WithCancel(ctx)
	defer stop()
	appended := make(chan int64, 1)
	go func() {
		last := int64(0)
		for flow.Err() == nil {
			result, err := store.Append(ctx, "s", event.Any, someEvents(3)...)
			if err != nil {
				t.Error(err)
				break
			}
			last = result.Positions[2]
			<-time.After(2 * time.Millisecond)
		}
		appended <- last
	}()
	observer := must(counting(store, "observer", nil))(t) // never started
	const kills = 12
	// By chance, none of them may have met the owner.
	for i := 0; i < kills || one[int64](t, store, "select max(epoch) from millrace_leases") < 2; i++ {
		// Until the projection has moved on, and for a while after that.
		head := one[int64](t, store, "select head from millrace_tenants where id = 1")
		noError(t, observer.WaitFor(ctx, countedBy, head))
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
		kill(random.IntN(len(processes)))
		start()
	}
	stop()
	last := <-appended
	noError(t, observer.WaitFor(ctx, countedBy, last))
	status := must(observer.Status(ctx, admin.StatusFilter{}))(t).Projection(countedBy)
	t.Logf("%d events, %d epochs", last, status.Epoch)
	if status.Parked != 0 || status.Epoch < 2 {
		t.Errorf("the status is %+v", status)
	}
	if n, wrong := one[int64](t, store, "select count(*) from counted"),
		one[int64](t, store, "select count(*) from counted where at <> position"); n != last || wrong != 0 {
		t.Errorf("%d of %d events were applied, %d of them not in order", n, last, wrong)
	}
}
