package valid

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/millrace-go/millrace/internal/excerpt"
)

const (
	// MaxPrinted limits the bytes of a JSON value as PostgreSQL prints it. A larger limit would allow values that jsonb
	// refuses for their number of elements. With a smaller one, more large documents would be refused.
	MaxPrinted = 32 << 20
	// maxWhole and maxFraction are how many digits numeric can have before and after the decimal point, and maxExponent
	// is its largest exponent. Source: PostgreSQL documentation, "Numeric Types", and set_var_from_str in numeric.c.
	maxWhole    = 131_072
	maxFraction = 16_383
	maxExponent = 1<<30 - 2
)

// Printed returns an error that begins with what if PostgreSQL cannot store the numbers of a valid JSON value as jsonb,
// or would print more than limit bytes for it. It prints all digits of a number: 131,072 for 1e131071.
func Printed(what string, text []byte, limit int) error {
	bytes, err := PrintedBytes(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s contains %w", what, err)
	case bytes <= limit:
		return nil
	}
	err = fmt.Errorf("%s has %d bytes as PostgreSQL prints it, of at most %d", what, bytes, limit)
	if number, at, digits := largestNumber(text); digits > len(number) {
		err = fmt.Errorf("%w; the number %s at %s has %d of them", err, excerpt.Of(number), excerpt.Of(at), digits)
	}
	return err
}

// PrintedBytes returns about how many bytes PostgreSQL prints for a valid JSON value, and never fewer than it does:
// escapes of strings and repeated members are counted as they are in text.
func PrintedBytes(text []byte) (total int, err error) {
	for i := 0; i < len(text); {
		end := i + 1
		switch c := text[i]; {
		case c == '"':
			end = stringEnd(text, i)
			total += end - i
		case c == ',' || c == ':':
			total += 2 // a space follows
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		case c == '-' || '0' <= c && c <= '9':
			end = numberEnd(text, i)
			n, err := printedNumber(text[i:end])
			if err != nil {
				return 0, err
			}
			total += n
		default:
			total++
		}
		i = end
	}
	return total, nil
}

// stringEnd returns where the string ends that begins at start.
func stringEnd(text []byte, start int) int {
	for i := start + 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func numberEnd(text []byte, start int) int {
	rest := bytes.IndexFunc(text[start:], func(r rune) bool {
		return (r < '0' || r > '9') && r != '-' && r != '+' && r != '.' && r != 'e' && r != 'E'
	})
	if rest < 0 {
		return len(text)
	}
	return start + rest
}

// printedNumber returns how many bytes PostgreSQL prints for a valid number of JSON, or an error if numeric cannot have
// it.
func printedNumber(number []byte) (int, error) {
	digits, sign := bytes.CutPrefix(number, []byte("-"))
	exponent := 0
	if at := bytes.IndexAny(digits, "eE"); at >= 0 {
		n, err := strconv.Atoi(string(digits[at+1:]))
		if err != nil || n > maxExponent || n < -maxExponent {
			return 0, outOfRange(number)
		}
		digits, exponent = digits[:at], n
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	places := max(0, len(fraction)-exponent)
	first, isZero := firstDigit(whole, fraction)
	before := 0
	if !isZero {
		before = max(0, len(whole)+exponent-first)
	}
	if before > maxWhole || places > maxFraction {
		return 0, outOfRange(number)
	}
	total := max(1, before)
	if places > 0 {
		total += 1 + places
	}
	if sign {
		total++
	}
	return total, nil
}

// firstDigit returns the place of the first digit that is not zero.
func firstDigit(whole, fraction []byte) (at int, isZero bool) {
	for i, part := range [2][]byte{whole, fraction} {
		if rest := bytes.TrimLeft(part, "0"); len(rest) > 0 {
			return i*len(whole) + len(part) - len(rest), false
		}
	}
	return 0, true
}

func outOfRange(number []byte) error {
	return fmt.Errorf("the number %s, which PostgreSQL cannot store: it has more than %d digits before the decimal point, or %d after it",
		excerpt.Of(string(number)), maxWhole, maxFraction)
}

// largestNumber returns the number of a JSON value for which PostgreSQL prints the most bytes, and its path.
func largestNumber(text []byte) (number, at string, most int) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	w := numbers{decoder: d}
	w.value(nil)
	return w.number, w.at, w.most
}

// numbers finds the largest number of a JSON value.
type numbers struct {
	decoder    *json.Decoder
	number, at string
	most       int
}

// value reads the next value, which is at a path. It returns false at the end of an array.
func (n *numbers) value(path []any) bool {
	token, err := n.decoder.Token()
	if err != nil {
		return false
	}
	switch token := token.(type) {
	case json.Number:
		if size, err := printedNumber([]byte(token)); err == nil && size > n.most {
			n.number, n.at, n.most = token.String(), pathText(path), size
		}
	case json.Delim:
		switch token {
		case '[':
			for i := 0; n.value(append(path, i)); i++ {
			}
		case '{':
			for n.decoder.More() {
				name, err := n.decoder.Token()
				if err != nil {
					return false
				}
				n.value(append(path, name))
			}
			_, _ = n.decoder.Token()
		default:
			return false
		}
	}
	return true
}

// pathText returns a path as jsonpath has it.
func pathText(path []any) string {
	text := []byte("$")
	for _, step := range path {
		switch step := step.(type) {
		case int:
			text = append(strconv.AppendInt(append(text, '['), int64(step), 10), ']')
		case string:
			text = strconv.AppendQuote(append(text, '.'), step)
		}
	}
	return string(text)
}
