package migration

import (
	"errors"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMigrationsAreNumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]fstest.MapFS{
		"gap":     {"m/0001_a.sql": {}, "m/0003_b.sql": {}},
		"doubled": {"m/0001_a.sql": {}, "m/0001_b.sql": {}},
		"unnamed": {"m/first.sql": {}},
	} {
		if _, err := Load(files, "m"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	list, err := Load(fstest.MapFS{"m/0001_a.sql": {Data: []byte("x")}, "m/0002_b.sql": {}}, "m")
	if err != nil || len(list) != 2 || list[0] != (Step{"0001_a", "x"}) {
		t.Errorf("%v, %v", list, err)
	}
}

func TestSchemaMayBeOneVersionAhead(t *testing.T) {
	const own = 3
	for version, want := range map[int]error{0: ErrNotMigrated, 2: ErrNotMigrated, 3: nil, 4: nil, 5: ErrTooNew} {
		if err := Acceptable(version, own); !errors.Is(err, want) {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
}
