// Package valid checks that a store can keep a text or a JSON value, before it is sent.
package valid

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
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

// maxIDBytes limits the ids and aliases of streams, which are indexed.
const maxIDBytes = 500

// ID returns an error if no stream can have that id or alias. The error begins with the text in what.
func ID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s must not be empty", what)
	case len(id) > maxIDBytes:
		return fmt.Errorf("%s must be at most %d bytes: %d bytes", what, maxIDBytes, len(id))
	}
	return Text(what, id)
}

// maxTenantBytes limits the names of tenants.
const maxTenantBytes = 200

// Tenant returns an error if no tenant can have that name.
func Tenant(name string) error { return Name("tenant", name, maxTenantBytes) }

// Name returns an error if name is empty, longer than most bytes, or not printable in a line. The error begins
// with the text in what.
func Name(what, name string, most int) error {
	if name == "" {
		return fmt.Errorf("%s must not be empty", what)
	}
	if len(name) > most {
		return fmt.Errorf("%s must be at most %d bytes: %s", what, most, excerpt.Quoted(name))
	}
	if err := Text(what, name); err != nil {
		return err
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s must not contain control characters: %s", what, excerpt.Quoted(name))
		}
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
	if err := Escapes(body); err != nil {
		return fmt.Errorf("%s contains %w", what, err)
	}
	return Printed(what, body, MaxPrinted)
}

// Body returns the body of an event as it is stored: null if it is empty.
func Body(body []byte) []byte {
	if len(body) == 0 {
		return []byte("null")
	}
	return body
}
