// Package console prints text and tables, on terminals of any width and elsewhere.
package console

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// ellipsis stands where a text is cut.
const ellipsis = "…"

// OneLine returns a text in one line, without control characters.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, unicode.IsControl), "; ")
}

// Width returns how many columns of a terminal a text takes.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Fit returns a text that takes at most the given columns. A longer one loses its middle, since names often differ at
// their ends.
func Fit(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	if columns < 1 {
		return ""
	}
	runes := []rune(text)
	head, tail, left := 0, len(runes), columns-1
	for fromHead := true; ; fromHead = !fromHead {
		next := runes[tail-1]
		if fromHead {
			next = runes[head]
		}
		left -= runeWidth(next)
		if left < 0 {
			return string(runes[:head]) + ellipsis + string(runes[tail:])
		}
		if fromHead {
			head++
		} else {
			tail--
		}
	}
}

// Wrap breaks a line between words and indents the parts after the first.
func Wrap(line string, columns int) (lines []string) {
	const indent = "  "
	columns = max(columns, 2*len(indent))
	text := []rune(line)
	for {
		end := fits(text, columns)
		if end == len(text) {
			return append(lines, string(text))
		}
		at := end
		for i := end; i > len(indent); i-- {
			if text[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(text[:at]), " "))
		text = []rune(indent + strings.TrimLeft(string(text[at:]), " "))
	}
}

// fits returns how many of the first runes fit into the columns.
func fits(text []rune, columns int) int {
	for i, r := range text {
		columns -= runeWidth(r)
		if columns < 0 {
			return i
		}
	}
	return len(text)
}

// Lines returns a text of several lines without control characters, such as a stack.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
