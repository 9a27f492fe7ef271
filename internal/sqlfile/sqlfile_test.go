package sqlfile

import (
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatementIsLoadedWithoutItsComments(t *testing.T) {
	files := fstest.MapFS{"queries/a.sql": {Data: []byte("-- why\n-- more\nselect 1, -- one\n\n  '--'\n")}}
	if got, want := Load(files).Text("a"), "select 1, -- one\n'--'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a file that is missing is not noticed")
		}
	}()
	Load(files).Text("b")
}
