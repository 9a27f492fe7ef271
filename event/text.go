package event

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// ValidText reports why PostgreSQL could not store s as text, naming it by what; nil means that it can.
func ValidText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %s is not valid UTF-8", what, excerpt.Quoted(s))
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%s %s contains a NUL character", what, excerpt.Quoted(s))
	}
	return nil
}
