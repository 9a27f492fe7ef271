// Package valid checks that PostgreSQL can store a text or a JSON value, before it is sent.
package valid

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// Text returns an error that names s by what if s cannot be stored as text.
func Text(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %s is not valid UTF-8", what, excerpt.Quoted(s))
	}
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%s %s contains a NUL character", what, excerpt.Quoted(s))
	}
	return nil
}

// JSON returns an error that begins with what if body cannot be stored as jsonb.
func JSON(what string, body []byte) error {
	switch {
	case !json.Valid(body):
		return fmt.Errorf("%s is not one valid JSON value", what)
	case !utf8.Valid(body):
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	if err := escapes(body); err != nil {
		return fmt.Errorf("%s contains %w", what, err)
	}
	return nil
}
