package pgstore

import "strings"

// tenantSQL is the statements on one tenant's schema, with its name in them. They differ from tenant to tenant, so they
// must not go through the prepared-statement cache, which would thrash with many tenants; see preparedTenants.
type tenantSQL struct {
	// appendNew, appendExact and appendAny append with the expected version of their name, and with a key.
	appendAny, appendNew, appendExact                  appendSQL
	appendFirst, streamVersion                         string
	tail, readRange, readStream, readStreamTypes, head string
	tailStart                                          string
}

// appendSQL is one way to append, without an idempotency key and with one.
type appendSQL struct{ plain, keyed string }

func newTenantSQL(control, tenantSchema string) tenantSQL {
	text := func(name string) string { return query(name, control, tenantSchema) }
	// The parts are put together before the schemas are put in: a tenant may be called {stream}.
	appending := func(name string) appendSQL {
		stream := queryText(name)
		plain := fill(stream, "{claimed}", "true", "{expected}", "$8")
		keyed := fill(stream, "{claimed}", "exists (select from claim)", "{expected}", "$9")
		return appendSQL{
			plain: inSchemas(fill(queryText("append"), "{stream}", plain), control, tenantSchema),
			keyed: inSchemas(fill(queryText("append_keyed"), "{stream}", keyed), control, tenantSchema),
		}
	}
	return tenantSQL{
		appendAny:       appending("append_any"),
		appendNew:       appending("append_new"),
		appendExact:     appending("append_exact"),
		appendFirst:     text("append_first"),
		streamVersion:   text("stream_version"),
		tail:            text("tail"),
		readRange:       text("read_range"),
		readStream:      text("read_stream"),
		readStreamTypes: text("read_stream_types"),
		head:            text("head"),
		tailStart:       text("tail_start"),
	}
}

func fill(sql string, oldnew ...string) string { return strings.NewReplacer(oldnew...).Replace(sql) }
