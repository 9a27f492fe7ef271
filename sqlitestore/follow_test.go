package sqlitestore

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
)

// Another process drops a tenant and creates it again. A follower must not go on with the new tenant's events, even if
// there are more.
func TestFollowersOfATenantCreatedAgainEnd(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	acme := newTenant(t, store, "acme")
	mustAppend(t, acme, "s", event.Any, someEvents(3)...)
	other := openStore(t, store.writer.at.path, Options{})
	following := must(other.ForTenant("acme"))(t)
	returned, ended := make(chan int64, 100), make(chan error, 1)
	go func() {
		for e, err := range following.Follow(testContext(t), event.ReadOptions{}) {
			if err != nil {
				ended <- err
				return
			}
			returned <- e.Position
		}
	}()
	for want := int64(1); want <= 3; want++ {
		if got := <-returned; got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	noError(t, store.DropTenant(testContext(t), "acme", tenancy.DropOptions{Confirm: "acme"}))
	acme = newTenant(t, store, "acme")
	mustAppend(t, acme, "s", event.Any, someEvents(10)...)
	select {
	case err := <-ended:
		if !errors.Is(err, tenancy.ErrRestored) && !errors.Is(err, tenancy.ErrUnknown) &&
			!errors.Is(err, tenancy.ErrDropping) {
			t.Error(err)
		}
	case position := <-returned:
		t.Errorf("it returned event %d of the new tenant", position)
	case <-time.After(time.Minute):
		t.Error("it has not ended")
	}
}
