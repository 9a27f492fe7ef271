package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShortValuesAreShownWhole(t *testing.T) {
	for _, s := range []string{"", "a", strings.Repeat("ü", most/2)} {
		if got := Of(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := Quoted("a\nb"); got != `"a\nb"` {
		t.Errorf("got %s", got)
	}
}

func TestLongValuesAreCutBetweenCharacters(t *testing.T) {
	for _, char := range []string{"a", "ü", "€", "𝄞"} {
		for lead := range 4 {
			s := strings.Repeat("x", lead) + strings.Repeat(char, 1<<18)
			for _, got := range []string{Of(s), Quoted(s)} {
				if !utf8.ValidString(got) || len(got) > 2*most || !strings.Contains(got, "…") ||
					!strings.HasSuffix(got, " bytes)") {
					t.Errorf("%d × x and %s: %q", lead, char, got)
				}
			}
		}
	}
	if got := Quoted(strings.Repeat("\x80", 1000)); len(got) > 5*most {
		t.Errorf("bytes that are no text: %d bytes", len(got))
	}
}
