package chaos_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace-go/millrace/tenancy"
)

func TestRefusalsWithoutAReasonAreFound(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	archived := fmt.Errorf("append: %w", tenancy.ErrArchived)
	closed := closure{tenant: "acme", errs: []error{tenancy.ErrArchived}, from: at(100), to: at(110)}
	open := closed
	open.to = time.Time{}
	for name, test := range map[string]struct {
		refusal refusal
		closure closure
		losses  []loss
		found   bool
	}{
		"during the archive": {refusal: refusal{"acme", at(104), at(105), archived}, closure: closed},
		"since before it":    {refusal: refusal{"acme", at(99), at(101), archived}, closure: closed},
		"until after it":     {refusal: refusal{"acme", at(109), at(111), archived}, closure: closed},
		"before it": {
			refusal: refusal{"acme", at(98), at(99), archived}, closure: closed, found: true,
		},
		"after it": {
			refusal: refusal{"acme", at(111), at(112), archived}, closure: closed, found: true,
		},
		"while it lasts": {refusal: refusal{"acme", at(111), at(112), archived}, closure: open},
		"of another tenant": {
			refusal: refusal{"bolt", at(104), at(105), archived}, closure: closed, found: true,
		},
		"with another error": {
			refusal: refusal{"acme", at(104), at(105), errors.New("other")}, closure: closed, found: true,
		},
		"after the loss of its end": {
			refusal: refusal{"acme", at(130), at(131), archived}, closure: closed, losses: []loss{{at(109), at(120)}},
		},
		"long after the loss of its end": {
			refusal: refusal{"acme", at(200), at(201), archived}, closure: closed, losses: []loss{{at(109), at(120)}},
			found: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{servers: &servers{losses: test.losses}, closures: []closure{test.closure}}
			if found := c.unexplained(&writers{refused: []refusal{test.refusal}}); len(found) > 0 != test.found {
				t.Errorf("found %v", found)
			}
		})
	}
}
