package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLongTextsAreCutAtARune(t *testing.T) {
	for _, unit := range []string{"xy", "ü", "€", "😀", "\x00", "a\xffb"} {
		for extra := range 8 {
			long := strings.Repeat("a", extra) + strings.Repeat(unit, MaxStorable)
			got := Storable(long)
			if len(got) > MaxStorable || len(got) < MaxStorable-utf8.UTFMax || !utf8.ValidString(got) ||
				strings.Contains(got, "\x00") || !strings.HasSuffix(got, "bytes in all)") {
				t.Errorf("%q after %d bytes: %d bytes, %q", unit, extra, len(got), got[max(0, len(got)-50):])
			}
		}
	}
	if whole := strings.Repeat("x", MaxStorable); Storable(whole) != whole {
		t.Error("a text that is not too long is cut")
	}
}
