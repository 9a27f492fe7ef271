package sqltext

import "testing"

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
