package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Digest counts the rows of a table and computes a checksum of their values and order.
type Digest struct {
	Rows int64
	sum  hash.Hash
	row  []byte
}

// NewDigest returns the digest of no rows.
func NewDigest() *Digest { return &Digest{sum: sha256.New()} }

// Add adds the next row of a table.
func (d *Digest) Add(table Table, row Row) error {
	d.Rows++
	d.row = d.row[:0]
	for i, value := range row {
		var err error
		if d.row, err = appendValue(d.row, table.Columns[i].Kind, value); err != nil {
			return fmt.Errorf("column %s: %w", table.Columns[i].Name, err)
		}
	}
	d.sum.Write(d.row)
	return nil
}

// Checksum returns the checksum of the rows that were added.
func (d *Digest) Checksum() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// Different returns the name of the first column in which two rows differ, or an empty string.
func Different(table Table, a, b Row) (string, error) {
	for i, c := range table.Columns {
		x, err := appendValue(nil, c.Kind, a[i])
		if err != nil {
			return "", err
		}
		y, err := appendValue(nil, c.Kind, b[i])
		if err != nil {
			return "", err
		}
		if !bytes.Equal(x, y) {
			return c.Name, nil
		}
	}
	return "", nil
}

// appendValue appends a value so that no other list of values has the same bytes.
func appendValue(to []byte, kind Kind, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return append(to, 'z'), nil
	case int64:
		return binary.BigEndian.AppendUint64(append(to, 'i'), uint64(value)), nil
	case string:
		if kind == JSON {
			return appendJSONText(append(to, 'j'), value)
		}
		return appendString(append(to, 's'), value), nil
	}
	return nil, fmt.Errorf("a value has the type %T", value)
}

func appendString(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// appendJSONText appends the value of a JSON text. The server's jsonb keeps values and not texts: it drops white
// space, orders the keys of objects, keeps the last of equal keys, and writes numbers in its own way.
func appendJSONText(to []byte, text string) ([]byte, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more than one JSON value")
	}
	return appendJSON(to, value)
}

func appendJSON(to []byte, value any) (_ []byte, err error) {
	switch value := value.(type) {
	case nil:
		return append(to, 'z'), nil
	case bool:
		return strconv.AppendBool(append(to, 'b'), value), nil
	case string:
		return appendString(append(to, 's'), value), nil
	case json.Number:
		return appendNumber(append(to, 'n'), string(value))
	case []any:
		to = binary.AppendUvarint(append(to, 'a'), uint64(len(value)))
		for _, element := range value {
			if to, err = appendJSON(to, element); err != nil {
				return nil, err
			}
		}
		return to, nil
	case map[string]any:
		to = binary.AppendUvarint(append(to, 'o'), uint64(len(value)))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if to, err = appendJSON(appendString(to, key), value[key]); err != nil {
				return nil, err
			}
		}
		return to, nil
	}
	return nil, fmt.Errorf("a JSON value has the type %T", value)
}

// appendNumber appends the value of a JSON number: its sign, its digits without zeros at both ends, and the exponent of
// its last digit. 1.10, 1.1 and 11e-1 are the same value, and so are 0 and -0.
func appendNumber(to []byte, number string) ([]byte, error) {
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(number), "e")
	scale := int64(0)
	if scaled {
		var err error
		if scale, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			return nil, fmt.Errorf("the number %s is out of range", number)
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return appendString(to, "0"), nil
	}
	scale += int64(len(digits)-len(trimmed)) - int64(len(fraction))
	if negative {
		trimmed = "-" + trimmed
	}
	return appendString(to, trimmed+"e"+strconv.FormatInt(scale, 10)), nil
}
