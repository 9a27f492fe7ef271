package pgstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/tenancy"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"queries/*.sql", "control/*.sql", "../internal/control/sql/*.sql",
		"internal/*/queries/*.sql"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		raw := must(os.ReadFile(file))(t)
		var header strings.Builder
		for line := range strings.Lines(string(raw)) {
			if !strings.HasPrefix(line, "--") {
				break
			}
			header.WriteString(strings.ToLower(line))
		}
		for _, what := range []string{"lock", "index"} {
			if !strings.Contains(header.String(), what) {
				t.Errorf("the comment of %s says nothing of %s", file, what)
			}
		}
	}
}

// heap returns the bytes of the live objects.
func heap() int64 {
	var stats runtime.MemStats
	for range 2 { // the second collection frees what finalizers held
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestTenantsTakeLittleMemory(t *testing.T) {
	store := newStore(t)
	const names, most = 10_000, 400
	all := make([]*Tenant, names)
	before := heap()
	for i := range all {
		var err error
		all[i], err = store.ForTenant(fmt.Sprintf("unknown-%d", i))
		if err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / names
	runtime.KeepAlive(all)
	// The caller keeps no reference to them, and the store must not keep one either.
	clear(all)
	left := (heap() - before) / names
	t.Logf("%d bytes for each of %d names, %d after the caller let go of them", each, names, left)
	if each > most || left > most/10 {
		t.Errorf("%d bytes for each of %d names, at most %d are expected, and %d after the caller let go of them", each,
			names, most, left)
	}
}

func TestUnknownTenantsTakeNoPlaceInTheStatementCache(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	for i := range 2 * preparedTenants {
		ghost := must(store.ForTenant(fmt.Sprint("ghost", i)))(t)
		if _, err := ghost.Append(testContext(t), "s", event.Any, someEvents(1)...); !errors.Is(err,
			tenancy.ErrUnknown) {
			t.Fatalf("error %v", err)
		}
	}
	tenant := newTenant(t, store, "real")
	for range 2 {
		mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
	}
	if n := one[int](t, store, "select count(*) from pg_prepared_statements where strpos(statement, $1) > 0",
		sqltext.Name(tenant.schema)); n != 1 {
		t.Errorf("%d statements of the tenant are cached", n)
	}
}

func TestTenantNamesDoNotMixWithPlaceholders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"{tenant}", "{control}", "{stream}", "{events}", "{count}", "{expire}", `"`, "$1"} {
		store := newStore(t)
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.Any.WithKey("k"), someEvents(2)...)
		mustAppend(t, tenant, "s", event.Any.WithKey("k1"), someEvents(1)...)
		if got := collect(t, tenant.ReadStream(testContext(t), "s", 1)); len(got) != 3 {
			t.Errorf("tenant %q: %d events", name, len(got))
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	store := newStore(b)
	for i := range preparedTenants {
		mustAppend(b, newTenant(b, store, fmt.Sprint("t", i)), "s", event.Any, someEvents(1)...)
	}
	unprepared := newTenant(b, store, "last")
	for name, tenant := range map[string]*Tenant{"prepared": store.tenant, "unprepared": unprepared} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := tenant.Append(b.Context(), "s", event.Any, someEvents(1)...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
