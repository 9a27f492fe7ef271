package chaos_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// closure is a period in which appends to a tenant may be refused with one of some errors.
type closure struct {
	tenant   string
	errs     []error
	from, to time.Time // to is zero while it lasts
}

// close records that appends to a tenant may be refused from now until over is called.
func (c *cluster) close(tenant string, errs ...error) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.closures)
	c.closures = append(c.closures, closure{tenant: tenant, errs: errs, from: time.Now()})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closures[at].to = time.Now()
	}
}

// explains reports whether the append may have been refused in the period.
func (c closure) explains(r refusal) bool {
	return c.tenant == r.tenant && (c.to.IsZero() || r.begun.Before(c.to)) && r.done.After(c.from) &&
		slices.ContainsFunc(c.errs, func(err error) bool { return errors.Is(r.err, err) })
}

// unexplained finds appends that were refused without a reason. A server that loses commits may also lose the end of a
// closure, until reopen repeats it.
func (c *cluster) unexplained(w *writers) (findings []finding) {
	c.mu.Lock()
	closures := slices.Clone(c.closures)
	c.mu.Unlock()
	for _, r := range w.refusals() {
		if slices.ContainsFunc(closures, func(one closure) bool { return one.explains(r) }) ||
			c.mayBeLost(r.begun.Add(-time.Minute), r.done) {
			continue
		}
		findings = append(findings, finding{kind: kindRefused, of: projection.ID{Tenant: r.tenant},
			detail: fmt.Sprintf("from %s to %s: %v", r.begun.Format(clock), r.done.Format(clock), r.err)})
	}
	return findings
}
