package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
)

// model is a naive store of one tenant.
type model struct {
	head     int64
	versions map[string]int64
	streams  []string // of the events, by position
	keys     map[string]modelKey
}

type modelKey struct {
	stream string
	result event.Appended
}

func newModel() *model {
	return &model{versions: make(map[string]int64), keys: make(map[string]modelKey)}
}

func (m *model) clone() *model {
	return &model{
		head: m.head, versions: maps.Clone(m.versions), streams: slices.Clone(m.streams), keys: maps.Clone(m.keys),
	}
}

func (m *model) append(stream string, expected event.Expected, n int) (event.Appended, error) {
	key, keyed := expected.Key()
	if first, used := m.keys[key]; keyed && used {
		if first.stream != stream {
			return event.Appended{}, event.ErrKeyReused
		}
		first.result.Repeated = true
		return first.result, nil
	}
	if version, bound := expected.Version(); bound && version != m.versions[stream] {
		return event.Appended{}, event.ErrVersionConflict
	}
	var result event.Appended
	for range n {
		m.head++
		m.versions[stream]++
		m.streams = append(m.streams, stream)
		result.Positions = append(result.Positions, m.head)
	}
	result.Version = m.versions[stream]
	if keyed {
		m.keys[key] = modelKey{stream, result}
	}
	return result, nil
}

// checkAgainst compares all events of the tenant with the model.
func (m *model) checkAgainst(t *rapid.T, tenant *Tenant) {
	var streams []string
	versions := make(map[string]int64)
	for e, err := range tenant.ReadAll(context.Background(), event.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, e.Stream)
		versions[e.Stream]++
		if e.Position != int64(len(streams)) || e.Version != versions[e.Stream] {
			t.Fatalf("event %d of tenant %s: %+v", len(streams), tenant.name, e)
		}
	}
	if !slices.Equal(streams, m.streams) {
		t.Fatalf("tenant %s has events of %q, want %q", tenant.name, streams, m.streams)
	}
}

// request is a random append.
type request struct {
	tenant   int
	stream   string
	expected event.Expected
	events   int
}

func drawRequest(t *rapid.T, models []*model) request {
	r := request{tenant: rapid.IntRange(0, len(models)-1).Draw(t, "tenant"),
		stream: rapid.SampledFrom([]string{"a", "b", "ü"}).Draw(t, "stream"),
		events: rapid.IntRange(1, 3).Draw(t, "events")}
	switch rapid.IntRange(0, 3).Draw(t, "expected") {
	case 0:
		r.expected = event.NoStream
	case 1:
		r.expected = event.Exact(max(0, models[r.tenant].versions[r.stream]+rapid.Int64Range(-1, 1).Draw(t, "off by")))
	}
	if rapid.Bool().Draw(t, "keyed") {
		r.expected = r.expected.WithKey(fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "key")))
	}
	return r
}

// agree returns an error if the store's result of a request is not the model's.
func agree(r request, got event.Appended, err error, want event.Appended, wantErr error) error {
	if !errors.Is(err, wantErr) || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("append of %+v: %+v, %v, want %+v, %v", r, got, err, want, wantErr)
	}
	return nil
}

var errOnPurpose = errors.New("on purpose")

func TestStoreAgreesWithAModel(t *testing.T) {
	t.Parallel()
	path, made := newPath(t), 0
	store := migrated(t, openStore(t, path, Options{Synchronous: SynchronousNormal}))
	defer func() { store.Close() }()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		// Each check has tenants of its own.
		made++
		names := []string{fmt.Sprint("a", made), fmt.Sprint("b", made)}
		if err := store.CreateTenants(ctx, names...); err != nil {
			t.Fatal(err)
		}
		models, tenants := []*model{newModel(), newModel()}, tenantsOf(t, store, names)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				r := drawRequest(t, models)
				want, wantErr := models[r.tenant].append(r.stream, r.expected, r.events)
				got, err := tenants[r.tenant].Append(ctx, r.stream, r.expected, someEvents(r.events)...)
				if err := agree(r, got, err, want, wantErr); err != nil {
					t.Fatal(err)
				}
			},
			"transaction": func(t *rapid.T) {
				after := []*model{models[0].clone(), models[1].clone()}
				commit := rapid.Bool().Draw(t, "commit")
				err := store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					for range rapid.IntRange(1, 4).Draw(t, "appends") {
						r := drawRequest(t, after)
						want, wantErr := after[r.tenant].append(r.stream, r.expected, r.events)
						got, err := tenants[r.tenant].AppendTx(ctx, tx, r.stream, r.expected, someEvents(r.events)...)
						if err := agree(r, got, err, want, wantErr); err != nil {
							return err
						}
					}
					if !commit {
						return errOnPurpose
					}
					return nil
				})
				switch {
				case err != nil && (commit || !errors.Is(err, errOnPurpose)):
					t.Fatal(err)
				case commit:
					models = after
				}
			},
			"open again": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip("opening takes long")
				}
				store.Close()
				var err error
				// Nothing is lost without syncs, since the machine keeps running.
				store, err = Open(ctx, path, Options{Synchronous: SynchronousNormal})
				if err != nil {
					t.Fatal(err)
				}
				tenants = tenantsOf(t, store, names)
			},
			"": func(t *rapid.T) {
				for i, m := range models {
					m.checkAgainst(t, tenants[i])
				}
			},
		})
	})
}

func tenantsOf(t *rapid.T, store *Store, names []string) (tenants []*Tenant) {
	for _, name := range names {
		tenant, err := store.ForTenant(name)
		if err != nil {
			t.Fatal(err)
		}
		tenants = append(tenants, tenant)
	}
	return tenants
}
