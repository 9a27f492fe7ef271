package valid

import (
	"strings"
	"testing"
)

func TestTextIsValidUTF8WithoutNUL(t *testing.T) {
	for text, want := range map[string]string{"": "", "ü": "", "\xff": "is not valid UTF-8",
		"a\x00b": "contains a NUL character"} {
		err := Text("name", text)
		if (want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "name ") ||
			err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
