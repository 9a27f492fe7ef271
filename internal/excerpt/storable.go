package excerpt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxStorable is the length of the longest text of an error, stack or reason in the database, in bytes: enough for a
// reader, too little to fill a table when each of many dead letters quotes a whole document.
const MaxStorable = 16 << 10

// Storable makes any text fit for a text column of every store. Text longer than MaxStorable is cut, with a mark.
func Storable(s string) string { return StorableUpTo(s, MaxStorable) }

// StorableUpTo is Storable with another limit, in bytes.
func StorableUpTo(s string, limit int) string {
	all := len(s)
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) <= limit {
		return s
	}
	mark := fmt.Sprintf("… (cut, %d bytes in all)", all)
	end := limit - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
