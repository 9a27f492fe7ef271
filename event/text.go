package event

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ValidText reports why PostgreSQL could not store s as text, naming it by what; nil means that it can.
func ValidText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %q is not valid UTF-8", what, s)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%s %q contains a NUL character", what, s)
	}
	return nil
}
