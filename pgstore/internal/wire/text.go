package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// Int is an integer parameter in text format.
func Int(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// TextArray is a text[] parameter in text format. Source: PostgreSQL documentation, "Array Input and Output Syntax".
func TextArray(items []string) []byte {
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

// MaxText is the length of the longest text of an error, stack or reason in the database, in bytes: enough for a reader, too
// little to fill a table when each of many dead letters quotes a whole document.
const MaxText = 16 << 10

// Text makes any text fit for a text column. Text longer than MaxText is cut, with a mark.
func Text(s string) string {
	all := len(s)
	if s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�"); len(s) <= MaxText {
		return s
	}
	mark := fmt.Sprintf("… (cut, %d bytes in all)", all)
	end := MaxText - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// ReadInts decodes rows of integers in text format, and calls each with every row.
func ReadInts(rows *pgconn.ResultReader, each func(row []int64)) error {
	var err error
	for rows.NextRow() {
		row := make([]int64, len(rows.Values()))
		for i, raw := range rows.Values() {
			n, parseErr := strconv.ParseInt(string(raw), 10, 64)
			row[i], err = n, errors.Join(err, parseErr)
		}
		if err == nil {
			each(row)
		}
	}
	_, closeErr := rows.Close()
	return errors.Join(err, closeErr)
}
