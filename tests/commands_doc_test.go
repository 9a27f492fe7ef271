package tests_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// The events and the error of docs/commands.md.
type (
	Deposited struct{ Cents int64 }
	Withdrawn struct{ Cents int64 }
)

func (Deposited) EventType() string { return "Deposited" }
func (Withdrawn) EventType() string { return "Withdrawn" }

var ErrTooLittle = errors.New("the account has too little")

func deposit(ctx context.Context, streams event.Appender, id, account string, cents int64) (event.Appended, error) {
	deposited := event.New(Deposited{Cents: cents})
	deposited.CausationID = id
	return streams.Append(ctx, "account-"+account, event.Any.WithKey(id), deposited)
}

// Account is what a decision needs to know.
type Account struct{ Cents int64 }

var accounts = aggregate.New("account",
	aggregate.On(func(a Account, e event.Of[Deposited]) Account { return Account{a.Cents + e.Body.Cents} },
		event.Strict),
	aggregate.On(func(a Account, e event.Of[Withdrawn]) Account { return Account{a.Cents - e.Body.Cents} },
		event.Strict),
)

// withdraw carries out the command id. It may be called again with the same id, by any node, until it returns no error.
func withdraw(ctx context.Context, store aggregate.Store, id, account string,
	cents int64) (aggregate.Result[Account], error) {
	return accounts.Do(ctx, store, account, func(a Account) ([]event.Event, error) {
		if a.Cents < cents {
			return nil, ErrTooLittle
		}
		return []event.Event{event.New(Withdrawn{Cents: cents})}, nil
	}, aggregate.Key(id))
}

// correlated gives what a request appends the id of the request.
func correlated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(event.WithCorrelation(r.Context(), r.Header.Get("X-Request-ID"))))
	})
}

// centsIn returns what is in account 1, and its version.
func centsIn(b *kit.Bundle) (cents, version int64) {
	b.T.Helper()
	a, err := accounts.Load(b.Ctx, b.Store, "1")
	b.Must(err)
	return a.State.Cents, a.Version
}

// A repeat returns the first result, also if the command has emptied the account, and if the account has changed since.
func TestRepeatedCommandHasOneEffect(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))})
		for range 2 {
			_, err := deposit(b.Ctx, b.Store, "a", "1", 100)
			b.Must(err)
		}
		first, err := withdraw(b.Ctx, b.Store, "b", "1", 100)
		b.Must(err)
		for _, more := range []int64{0, 5} {
			if more > 0 {
				_, err := deposit(b.Ctx, b.Store, "c", "1", more)
				b.Must(err)
			}
			again, err := withdraw(b.Ctx, b.Store, "b", "1", 100)
			if err != nil || !again.Appended.Repeated || again.Appended.Last() != first.Appended.Last() ||
				again.State.Cents != more {
				t.Errorf("the repeat: %+v, %v; the first: %+v", again, err, first)
			}
			b.Reaches(rt, "p", again.Position)
			if cents, _ := centsIn(b); cents != more {
				t.Errorf("the account has %d cents, want %d", cents, more)
			}
		}
		if result, err := withdraw(b.Ctx, b.Store, "d", "1", 6); !errors.Is(err, ErrTooLittle) || result.Position != 0 {
			t.Errorf("more than there is: %+v, %v", result, err)
		}
		if _, err := withdraw(b.Ctx, b.Store, "b", "2", 0); !errors.Is(err, event.ErrKeyReused) {
			t.Errorf("the same id for another account: %v", err)
		}
	})
}

// A command that finds an event of the next release decides nothing.
func TestCommandRefusesATypeThatItDoesNotKnow(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		_, err := deposit(b.Ctx, b.Store, "a", "1", 100)
		b.Must(err)
		_, err = b.Store.Append(b.Ctx, "account-1", event.Any, event.Untyped("Withdrawn.2", nil))
		b.Must(err)
		if _, err := withdraw(b.Ctx, b.Store, "b", "1", 100); !errors.Is(err, aggregate.ErrUnknownType) ||
			!strings.Contains(err.Error(), "event 2 of stream") {
			t.Error(err)
		}
		if head := b.Head(); head != 2 {
			t.Errorf("the last position is %d", head)
		}
	})
}

// The command of a request has its id, and so has what a handler appends because of it.
func TestRequestGivesItsIDToItsEvents(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		_, err := deposit(b.Ctx, b.Store, "a", "1", 100)
		b.Must(err)
		server := correlated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := withdraw(r.Context(), b.Store, "b", "1", 1); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}))
		request := httptest.NewRequestWithContext(b.Ctx, http.MethodPost, "/", nil)
		request.Header.Set("X-Request-ID", "request-9")
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		if answer.Code != http.StatusOK {
			t.Fatal(answer.Body)
		}
		b.Idle(millrace.Projection{Name: "p", Handler: kit.Typed[Withdrawn]{Store: b.Store}.On(
			func(ctx context.Context, tx kit.Tx, _ event.Of[Withdrawn]) error {
				_, err := b.Store.AppendTx(ctx, tx, "letters", event.Any, event.New(kit.Noted{}))
				return err
			})})
		if got, want := ids(b.All(b.Store)), []string{"a ",
			"b request-9", "default/2 request-9"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Many callers send each command at once and again, and every third answer is lost. No account is overdrawn, and each
// command has one effect.
func TestConcurrentCommandsHaveOneEffectEach(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		var appends atomic.Int64
		store := b.Around(func(next event.AppendFunc) event.AppendFunc {
			return func(ctx context.Context, a event.Appending) (event.Appended, error) {
				result, err := next(ctx, a)
				if err == nil && appends.Add(1)%3 == 0 {
					return event.Appended{}, kit.ErrOnPurpose
				}
				return result, err
			}
		})
		_, err := deposit(b.Ctx, b.Store, "first", "1", 10)
		b.Must(err)
		var refused atomic.Int64
		b.Must(kit.Together(8, func(i int) error {
			for n := range 5 {
				id := fmt.Sprintf("%d-%d", i/2, n) // two callers send each command
				for {
					_, err := withdraw(b.Ctx, store, id, "1", 1)
					if errors.Is(err, kit.ErrOnPurpose) {
						continue // its answer was lost
					}
					if errors.Is(err, ErrTooLittle) {
						refused.Add(1)
					} else if err != nil {
						return err
					}
					break
				}
			}
			return nil
		}))
		if cents, version := centsIn(b); cents != 0 || version != 11 || refused.Load() != 20 {
			t.Errorf("%d cents after %d events, and %d commands were refused", cents, version, refused.Load())
		}
	})
}
