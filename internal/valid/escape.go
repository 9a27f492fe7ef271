package valid

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
)

// Escapes returns an error for escapes that are valid JSON but that jsonb refuses: \u0000, and half of a surrogate pair
// without the other. Source: PostgreSQL documentation, "JSON Types".
func Escapes(valid []byte) error {
	for rest := valid; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		unit, ok := unicodeEscape(rest)
		switch {
		case !ok:
			rest = rest[2:]
			continue
		case unit == 0:
			return errors.New(`\u0000, which PostgreSQL cannot store in jsonb`)
		case utf16.IsSurrogate(unit):
			low, _ := unicodeEscape(rest[6:])
			if utf16.DecodeRune(unit, low) == '\uFFFD' {
				return fmt.Errorf("%s, which is half of a surrogate pair without the other", rest[:6])
			}
			rest = rest[6:]
		}
		rest = rest[6:]
	}
}

// unicodeEscape reads the UTF-16 unit where valid JSON continues with an escape of one.
func unicodeEscape(rest []byte) (unit rune, ok bool) {
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	return rune(n), err == nil
}
