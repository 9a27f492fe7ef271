package pgstore

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// tenantStatements are the statements on a tenant's schema. They are put together when they are sent, since the text for each of
// many tenants would take memory for ever (9 KB each). They differ from tenant to tenant, so they must not go through the
// prepared-statement cache, which would thrash with many tenants; see preparedTenants.
type tenantStatements struct {
	// appendAny, appendNew and appendExact append with the expected version of their name.
	appendAny, appendNew, appendExact                  appendStatements
	appendFirst, streamVersion                         statement
	tail, readRange, readStream, readStreamTypes, head statement
	tailStart                                          statement
}

// appendStatements are one way to append: without an idempotency key, with one, and with one while old keys are deleted.
type appendStatements struct{ plain, keyed, expiring statement }

// statement is a text, split at the places where the tenant's schema belongs.
type statement []string

// sql returns the text of a statement on the tenant's schema.
func (t *Tenant) sql(s statement) string { return strings.Join(s, t.quoted) }

func newStatement(text, control string) statement {
	parts := strings.Split(text, "{tenant}")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "{control}", sqltext.Name(control))
	}
	return parts
}

func newTenantStatements(control string, keyRetention time.Duration) tenantStatements {
	text := func(name string) statement { return newStatement(queryText(name), control) }
	expire := sqltext.Fill(queryText("expire_keys"), "{retention}", fmt.Sprintf("make_interval(secs => %f)", keyRetention.Seconds()))
	appending := func(name string) appendStatements {
		stream := queryText(name)
		plain := sqltext.Fill(stream, "{claimed}", "true", "{expected}", "$8")
		keyed := sqltext.Fill(stream, "{claimed}", "exists (select from claim)", "{expected}", "$9")
		return appendStatements{
			plain:    newStatement(sqltext.Fill(queryText("append"), "{stream}", plain), control),
			keyed:    newStatement(sqltext.Fill(queryText("append_keyed"), "{stream}", keyed, "{expire}", ""), control),
			expiring: newStatement(sqltext.Fill(queryText("append_keyed"), "{stream}", keyed, "{expire}", expire), control),
		}
	}
	return tenantStatements{
		appendAny:       appending("append_any"),
		appendNew:       appending("append_new"),
		appendExact:     appending("append_exact"),
		appendFirst:     text("first_append"),
		streamVersion:   text("stream_version"),
		tail:            text("read_tail"),
		readRange:       text("read_range"),
		readStream:      text("read_stream"),
		readStreamTypes: text("read_stream_types"),
		head:            text("head"),
		tailStart:       text("tail_start"),
	}
}

// preparedNames are the tenants whose appends go through the prepared-statement cache: the first that were appended to.
type preparedNames struct {
	mu    sync.RWMutex
	names []string
}

func (p *preparedNames) has(tenant string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, name := range p.names {
		if name == tenant {
			return true
		}
	}
	return false
}

// add adds a tenant that exists, while there are fewer than preparedTenants.
func (p *preparedNames) add(tenant string) {
	if p.has(tenant) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.names) < preparedTenants {
		p.names = append(p.names, tenant)
	}
}
