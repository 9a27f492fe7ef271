package pgstore

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

func TestMigratePassesOverATenantWhoseSchemaIsGone(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.ErrorLevel)
	store := migrated(t, openStore(t, pgtest.Database(t), Options{Logger: zap.New(core)}))
	for _, name := range []string{"a", "b", "c"} {
		newTenant(t, store, name)
	}
	mustExec(t, store, "alter schema millrace_b rename to away")
	mustExec(t, store, "alter schema millrace_default rename to away_default")
	own := len(ownMigrations.tenant)
	versions := func(want map[string]int) {
		t.Helper()
		for tenant, version := range want {
			if got := one[int](t, store, "select version from millrace.tenants where tenant = $1", tenant); got != version {
				t.Errorf("%s is at version %d, want %d", tenant, got, version)
			}
		}
	}
	noError(t, store.migrate(testContext(t), withMore(1)))
	versions(map[string]int{"a": own + 1, "b": own, "c": own + 1, "default": own})
	said := make(map[any]bool)
	for _, entry := range logs.TakeAll() {
		said[entry.ContextMap()["tenant"]] = strings.Contains(entry.ContextMap()["error"].(string), "is gone")
	}
	if len(said) != 2 || !said["b"] || !said["default"] {
		t.Errorf("logged: %v", said)
	}
	mustExec(t, store, "alter schema away rename to millrace_b")
	mustExec(t, store, "alter schema away_default rename to millrace_default")
	noError(t, store.migrate(testContext(t), withMore(1)))
	versions(map[string]int{"b": own + 1, "default": own + 1})
	if logs.Len() > 0 {
		t.Errorf("logged: %v", logs.All())
	}
}

func TestWhyATenantIsAbsentIsNamed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	read := func(tenant string) error {
		_, err := store.port().Read(ctx, tenant, engine.ReadRange{UpTo: 10, Limit: 1})
		return err
	}
	newTenant(t, store, "table")
	mustExec(t, store, "drop table millrace_table.events")
	newTenant(t, store, "schema")
	mustExec(t, store, "drop schema millrace_schema cascade")
	newTenant(t, store, "old")
	mustExec(t, store, "drop table millrace_old.events")
	mustExec(t, store, "update millrace.tenants set version = 0 where tenant = 'old'")
	for tenant, want := range map[string]struct {
		err  error
		says string
	}{
		"table":   {projection.ErrTenantDropped, `a table in the schema "millrace_table" of tenant "table" is gone`},
		"schema":  {projection.ErrTenantDropped, `the schema "millrace_schema" of tenant "schema" is gone`},
		"old":     {ErrNotMigrated, "schema version 0 is older"},
		"unknown": {projection.ErrUnknownTenant, `"unknown"`},
	} {
		for what, err := range map[string]error{"Read": read(tenant), "Absent": store.port().Absent(ctx, tenant)} {
			if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.says) || classify(err).Class != engine.Configuration {
				t.Errorf("%s of %s: %v", what, tenant, err)
			}
		}
	}
	if err := store.port().Absent(ctx, "default"); err != nil {
		t.Error(err)
	}
	mustExec(t, store, "drop schema millrace cascade")
	if err := read("table"); !errors.Is(err, ErrNotMigrated) || !strings.Contains(err.Error(), `control schema "millrace"`) {
		t.Errorf("without a control schema: %v", err)
	}
}
