// Package excerpt shortens texts of users for errors, logs and tables: a text may be megabytes long.
package excerpt

import (
	"fmt"
	"unicode/utf8"
)

// most is how many bytes of a value are shown.
const most = 80

// Of returns s, or its beginning and its length if it is longer than an error should show.
func Of(s string) string { return UpTo(s, most) }

// UpTo returns s, or its first limit bytes, up to the end of a character, and its length.
func UpTo(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", cut(s, limit), len(s))
}

// Quoted returns s in quotes, or its beginning in quotes and its length.
func Quoted(s string) string {
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", cut(s, most), len(s))
}

func cut(s string, limit int) string {
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:limit] // it is no text
}
