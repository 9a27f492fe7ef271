package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
)

var erasureFaults = []fault{{
	name:    "a person is erased",
	expects: "after the erasure no handler gets the events as they were, and everything continues",
	reach:   reachData, weight: 3, least: time.Second, most: 4 * time.Second, alone: 3 * time.Second,
	strike: func(s *strike) error { return s.repeat(100, 300, s.erasePerson) },
}}

// erased is a stream whose events were erased, and whose rows in public.applied have lost their tokens.
type erased struct {
	tenant, stream string
	begun, done    time.Time
}

// erasePerson appends events of a person, erases them, and removes their tokens from the read models, as a program does
// that knows how to forget. A row with a token then shows that a handler got an event as it was before.
func (s *strike) erasePerson() error {
	name, stream := tenants[s.rnd.IntN(len(tenants))], fmt.Sprint("person-", s.rnd.Uint64())
	spread := time.Duration(s.rnd.IntN(100)) * time.Millisecond
	s.tenantStates.RLock()
	defer s.tenantStates.RUnlock()
	s.pauses.Lock()
	defer s.pauses.Unlock()
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	e := erased{tenant: name, stream: stream}
	err = s.unlessLost(func() error {
		e.begun = time.Now()
		err := s.retried(func(ctx context.Context) error {
			body := fmt.Appendf(nil, `{"amount": 1, "token": "%s"}`, stream)
			events := []event.Event{{Type: typePlain, Body: body}, {Type: typePlain, Body: body}}
			_, err := tenant.Append(ctx, stream, event.Any.WithKey(stream), events...)
			return err
		})
		if err != nil {
			return err
		}
		s.wait(spread) // some projections have the events, some have not
		err = s.retried(func(ctx context.Context) error {
			_, err := tenant.EraseStream(ctx, stream, "chaos")
			return err
		})
		if err != nil {
			return err
		}
		return s.retried(func(ctx context.Context) error {
			_, err := s.admin.Exec(ctx, "update public.applied set token = '' where tenant = $1 and stream = $2", name,
				stream)
			return err
		})
	})
	if errors.Is(err, tenancy.ErrArchived) { // by another fault
		return nil
	}
	e.done = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erased = append(s.erased, e)
	return err
}

// forgiven gives the applications of erased streams the tokens of their events where a server may have lost one of
// both.
func (c *cluster) forgiven(h history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := make(map[string]bool)
	for _, e := range c.erased {
		lost[e.stream] = e.tenant == h.of.Tenant && c.mayBeLost(e.begun, e.done)
	}
	tokens := make(map[int64]string)
	for _, e := range h.events {
		tokens[e.Position] = e.Token
	}
	for i, a := range h.applied {
		if lost[a.Stream] {
			h.applied[i].Token = tokens[a.Position]
		}
	}
}
