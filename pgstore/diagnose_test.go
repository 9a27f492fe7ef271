package pgstore

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClocksThatDifferAreFound(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		server        time.Time
		before, after time.Duration
		want          string
	}{
		"equal":           {now, -time.Millisecond, time.Millisecond, ""},
		"a slow answer":   {now, -20 * time.Second, 20 * time.Second, ""},
		"a little ahead":  {now.Add(4 * time.Second), -time.Millisecond, 0, ""},
		"ahead":           {now.Add(time.Minute), -time.Millisecond, 0, "at least 1m0s"},
		"behind":          {now.Add(-time.Hour), 0, time.Millisecond, "at least 1h0m0s"},
		"behind and slow": {now.Add(-time.Hour), -time.Minute, time.Minute, "at least 59m0s"},
	} {
		e := &examination{}
		e.clock(test.server, now.Add(test.before), now.Add(test.after))
		switch {
		case test.want == "" && len(e.found) > 0:
			t.Errorf("%s: %+v", name, e.found)
		case test.want != "" && (len(e.found) != 1 ||
			e.found[0].Check != "clock" || !strings.Contains(e.found[0].Problem, test.want)):
			t.Errorf("%s: %+v, want %s", name, e.found, test.want)
		}
	}
}

// TestIndexesOfTheMigrationsAreKnown checks that Diagnose looks for the indexes without which the store is slow or
// wrong.
func TestIndexesOfTheMigrationsAreKnown(t *testing.T) {
	t.Parallel()
	control, tenant := indexesOf(ownMigrations.control), indexesOf(ownMigrations.tenant)
	if tables := slices.Concat(slices.Sorted(maps.Keys(control)),
		slices.Sorted(maps.Keys(tenant))); !slices.Equal(storeTables, tables) {
		t.Errorf("the tables of the store are %v, those with indexes %v", storeTables, tables)
	}
	for _, test := range []struct {
		tables         map[string][]string
		table, columns string
	}{
		{control, "tenants", "tenant"}, {control, "tenants", "schema_name"}, {control, "leases", "id"},
		{control, "leases", "owner"},
		{control, "parked_streams", "projection_id, stream_id"}, {control, "operations", "tenant, name"},
		{control, "aliases", "tenant, name"},
		{tenant, "events", "global_seq"}, {tenant, "events", "stream_id, stream_version"},
		{tenant, "streams", "stream_id"},
		{tenant, "append_keys", "created_at"}, {tenant, "append_keys", "key"}, {tenant, "append_results", "key"},
	} {
		found := false
		for _, columns := range test.tables[test.table] {
			found = found || columns == test.columns
		}
		if !found {
			t.Errorf("%s (%s) is not among %v", test.table, test.columns, test.tables[test.table])
		}
	}
}
