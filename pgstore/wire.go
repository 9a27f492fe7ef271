package pgstore

import (
	"strconv"
	"strings"
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

// storable makes text that may hold anything fit for a text column.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
}
