package sqltext

import (
	"testing"
	"testing/fstest"
)

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

func TestValuesAreQuotedAndFilledInOnce(t *testing.T) {
	if got, want := Name(`a"b.c`), `"a""b.c"`; got != want {
		t.Errorf("name: got %s, want %s", got, want)
	}
	if got, want := String(`it's \ "so"`), `'it''s \ "so"'`; got != want {
		t.Errorf("string: got %s, want %s", got, want)
	}
	if got, want := Fill("{a} {b}", "{a}", "{b}", "{b}", "{a}"), "{b} {a}"; got != want {
		t.Errorf("filled: got %s, want %s", got, want)
	}
}
