package pgstore

import (
	"embed"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/sqlfile"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

//go:embed queries/*.sql control/*.sql
var queryFiles embed.FS

// queries are the statements as they stand in their files, without macros.
var queries = sqlfile.Load(queryFiles).Share(control.Statements, macros.Expand)

// macros are those of the statements that both stores share. {control} is filled for each store.
var macros = sqlfile.Macros{
	"control":     "{control}",
	"projection":  "projection_id",
	"now":         "clock_timestamp()",
	"in":          "= any(%s)",
	"rows":        "unnest(%s) as list(value)",
	"objects":     "jsonb_array_elements(%s) as list(value)",
	"tenant_id":   "%s",
	"tenant_name": "tenant",
	"living":      "exists (select from {control}.nodes n where n.id = %s and n.expires_at > clock_timestamp())",
	"lock":        "%s",

	"object":         "json_build_object(%s)::text",
	"array":          "coalesce(json_agg(%s), '[]')",
	"json":           "to_json(%s)",
	"micros":         "(extract(epoch from %s) * 1000000)::bigint",
	"time":           "timestamptz 'epoch' + (%s)::bigint * interval '1 microsecond'",
	"numbers":        "case when jsonb_typeof(list.value->%s) = 'array' then array(select x.v::bigint from jsonb_array_elements_text(list.value->%s) x (v)) end",
	"texts":          "case when jsonb_typeof(list.value->%s) = 'array' then array(select x.v from jsonb_array_elements_text(list.value->%s) x (v)) end",
	"ids":            "case when jsonb_typeof(list.value->%s) = 'array' then array(select x.v::bigint + $4::bigint from jsonb_array_elements_text(list.value->%s) x (v)) end",
	"passed":         "(select coalesce(json_agg(json_build_array(x.f, x.t, x.u)), '[]') from unnest(%s.passed_from, %s.passed_to, %s.passed_upto) x (f, t, u))",
	"passed_columns": "passed_from, passed_to, passed_upto",
	"passed_values": "array(select (x.v->>0)::integer from jsonb_array_elements(list.value->'passed') x (v)), " +
		"array(select (x.v->>1)::integer from jsonb_array_elements(list.value->'passed') x (v)), " +
		"array(select (x.v->>2)::bigint from jsonb_array_elements(list.value->'passed') x (v))",
	"stream_version": "stream_version",
	"given_ids":      "overriding system value",
}

// controlSchema is the control schema: the statements of a store, and the names that are derived from the schema's.
type controlSchema struct {
	name string
	// quoted is the name as it stands in statements.
	quoted string
	// statements are split where the quoted schema of a tenant belongs. The texts for each of many tenants would take 9
	// KB of memory per tenant.
	statements map[string][]string
	// wakeChannel carries wake-ups, controlChannel notices about leases: see engine.Notice.
	wakeChannel, controlChannel string
	// batchClass is the class of the advisory locks by which batches announce themselves. The object is the lease's
	// row.
	batchClass int32
}

func newControlSchema(name string, keyRetention time.Duration) controlSchema {
	c := controlSchema{name: name, quoted: sqltext.Name(name), statements: make(map[string][]string),
		wakeChannel:    name + "_wake",
		controlChannel: controlChannel(name), batchClass: int32(lockKey("millrace batch " + name))}
	for statement, text := range queries {
		c.add(statement, sqltext.Fill(text, "{lease}", queries.Text("lease_columns")))
	}
	expire := sqltext.Fill(queries.Text("expire_keys"), "{retention}",
		fmt.Sprintf("make_interval(secs => %f)", keyRetention.Seconds()))
	for _, stream := range []string{"append_any", "append_new", "append_exact"} {
		for _, events := range []string{"append_one", "append_many", "append_timed"} {
			c.addAppends(stream, events, "", "append", "true", "")
			c.addAppends(stream, events, " keyed", "append_keyed", "exists (select from claim)", "")
			c.addAppends(stream, events, " expiring", "append_keyed", "exists (select from claim)", expire)
		}
	}
	return c
}

// addAppends adds the statements of appends of one kind, from their parts. Times and then the expected version follow
// the other arguments.
func (c *controlSchema) addAppends(stream, events, kind, file, claimed, expire string) {
	last, count, column, value := 6, "cardinality($2::text[])", "", ""
	if kind != "" {
		last++ // the key
	}
	switch events {
	case "append_one":
		count = "1"
	case "append_timed":
		last, column, value = last+1, ", created_at", ", coalesce(e.at, clock_timestamp())"
	}
	times, expected := fmt.Sprint("$", last), fmt.Sprint("$", last+1)
	part := sqltext.Fill(queries.Text(stream), "{claimed}", claimed, "{expected}", expected, "{count}", count)
	text := sqltext.Fill(queries.Text(file), "{stream}", part, "{events}",
		sqltext.Fill(queries.Text(events), "{times}", times), "{count}", count,
		"{expire}", expire, "{created_at}", column, "{time}", value)
	for returned, more := range map[string]string{"": "", " durable": queries.Text("append_durable"),
		" own": queries.Text("append_own")} {
		c.add(stream+" "+events+kind+returned, sqltext.Fill(text, "{returned}", more))
	}
}

// controlChannel returns the channel of notices about leases and tenants.
func controlChannel(schema string) string { return schema + "_control" }

func (c *controlSchema) add(name, text string) {
	parts := strings.Split(text, "{tenant}")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "{control}", c.quoted)
	}
	c.statements[name] = parts
}

// sql returns a statement on the control schema. It panics if there is none of that name.
func (c *controlSchema) sql(name string) string { return c.inTenant(name, "") }

// onTenant reports whether a statement is on the schema of a tenant.
func (c *controlSchema) onTenant(name string) bool { return len(c.statements[name]) > 1 }

// sql returns a statement on the tenant's schema. Statements differ between tenants, so they must not go through the
// driver's cache of prepared statements, which is too small for many tenants; see preparedTenants.
func (t namedTenant) sql(name string) string { return t.db.control.inTenant(name, t.quoted) }

func (c *controlSchema) inTenant(name, schema string) string {
	parts, ok := c.statements[name]
	if !ok {
		panic("there is no statement " + name)
	}
	return strings.Join(parts, schema)
}

// checkLease returns the call of the control schema's function check_lease. It contains only numbers, a UUID and a
// quoted name.
func (c *controlSchema) checkLease(l engine.Lease) string {
	return fmt.Sprintf("%s.check_lease(%d, '%s', %d, %d)", c.quoted, l.Row, l.Owner, l.Epoch, l.Incarnation)
}

// inSchemas puts the quoted schemas in place of {control} and {tenant}.
func inSchemas(sql, control, tenant string) string {
	return sqltext.Fill(sql, "{control}", sqltext.Name(control), "{tenant}", sqltext.Name(tenant))
}

// lockKey derives the key of an advisory lock from a name.
func lockKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64())
}
