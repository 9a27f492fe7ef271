package transfer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	pageRows = 5000
	// pageBytes bounds the memory of a page of large rows.
	pageBytes = 8 << 20
)

// Page is a list of rows that are written together.
type Page struct {
	Rows  []string
	bytes int
}

// Add adds a row. It reports whether the page is full.
func (p *Page) Add(row string) (full bool) {
	p.Rows = append(p.Rows, row)
	p.bytes += len(row)
	return len(p.Rows) >= pageRows || p.bytes >= pageBytes
}

// JSON returns the rows as a JSON array.
func (p *Page) JSON() string { return "[" + strings.Join(p.Rows, ",") + "]" }

// Storable returns a row in which U+FFFD stands for characters that PostgreSQL cannot store as text, which errors of
// handlers may contain.
func Storable(row string) string {
	row = strings.ToValidUTF8(row, "\uFFFD")
	if !strings.Contains(row, `\u0000`) {
		return row
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(row, `\`)
		b.WriteString(before)
		switch {
		case !found:
			return b.String()
		case strings.HasPrefix(after, "u0000"):
			b.WriteString("\uFFFD")
			row = after[len("u0000"):]
		default: // the character after it belongs to the escape, also if it is a backslash
			b.WriteString(`\` + after[:1])
			row = after[1:]
		}
	}
}

// Members returns the members of a row.
func Members(row string) (members map[string]any, err error) {
	decoder := json.NewDecoder(strings.NewReader(row))
	decoder.UseNumber()
	err = decoder.Decode(&members)
	return members, err
}

// Different returns the name of a member in which two rows differ, or an empty string. JSON texts are compared by their
// values: jsonb drops white space, orders the keys of objects, keeps the last of equal keys, and writes numbers in its
// own way.
func Different(a, b string) (member string, err error) {
	if a == b {
		return "", nil
	}
	x, err := Members(a)
	if err != nil {
		return "", err
	}
	y, err := Members(b)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(x)) {
		one, err := appendMember(name, x[name])
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		other, err := appendMember(name, y[name])
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(one, other) {
			return name, nil
		}
	}
	return "", nil
}

func appendMember(name string, value any) ([]byte, error) {
	if text, is := value.(string); is && (name == "body" || name == "headers") {
		return appendJSONText([]byte("j"), text)
	}
	return appendJSON(nil, value)
}

func appendString(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// appendJSONText appends the value of a JSON text.
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

// appendJSON appends a value so that no other value has the same bytes.
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
			to, err = appendJSON(to, element)
			if err != nil {
				return nil, err
			}
		}
		return to, nil
	case map[string]any:
		to = binary.AppendUvarint(append(to, 'o'), uint64(len(value)))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			to, err = appendJSON(appendString(to, key), value[key])
			if err != nil {
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
		scale, err = strconv.ParseInt(exponent, 10, 32)
		if err != nil {
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
