package pgstore

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number is an integer parameter in text format.
func number(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// textArray is a text[] parameter in text format. Source: PostgreSQL documentation, "Array Input and Output Syntax".
func textArray(items []string) []byte {
	b := []byte{'{'}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(item)...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// maxTextBytes bounds the texts of errors, stacks and reasons in the database: enough for what a person reads, too little to fill
// a table when each of many dead letters quotes a whole document.
const maxTextBytes = 16 << 10

// storable makes any text fit for a text column. Text longer than maxTextBytes is cut, with a mark.
func storable(s string) string {
	all := len(s)
	if s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�"); len(s) <= maxTextBytes {
		return s
	}
	mark := fmt.Sprintf("… (cut, %d bytes in all)", all)
	end := maxTextBytes - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
