package console

import (
	"slices"
	"strings"
)

// Style is how important a text is. It is shown as a colour, where there are colours.
type Style int

const (
	Plain Style = iota
	Good
	Warning
	Bad
	Faint
)

// codes are the colours of the styles, by the standard ANSI escape codes.
var codes = map[Style]string{Good: "\x1b[32m", Warning: "\x1b[33m", Bad: "\x1b[31m", Faint: "\x1b[2m"}

const plainCode = "\x1b[0m"

// Column describes a column of a table.
type Column struct {
	Title string
	// Right aligns texts at the right, as numbers should be.
	Right bool
	// Optional columns are left out if the table is too wide, those with the highest number first. Others are always
	// shown.
	Optional int
	// Least is the number of columns to which texts may be cut if the table is too wide. 0 means that they are not cut.
	Least int
}

// Cell is a text in a table.
type Cell struct {
	Text  string
	Style Style
}

// Table is a table of texts.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Add adds a row of plain texts.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	t.Rows = append(t.Rows, row)
}

// gap separates columns.
const gap = "  "

// Lines returns the table in lines of at most the given width, with colours or without. A width of 0 is unlimited. If
// the columns that are always shown do not fit, lines are longer.
func (t Table) Lines(width int, colours bool) (lines []string) {
	widths, shown := t.layout(width)
	line := func(cells []Cell) {
		var b strings.Builder
		for n, i := range shown {
			if n > 0 {
				b.WriteString(gap)
			}
			text := Fit(OneLine(cells[i].Text), widths[i])
			space := strings.Repeat(" ", widths[i]-Width(text))
			if t.Columns[i].Right {
				b.WriteString(space)
			}
			if code := codes[cells[i].Style]; colours && code != "" {
				text = code + text + plainCode
			}
			b.WriteString(text)
			if !t.Columns[i].Right && n < len(shown)-1 {
				b.WriteString(space)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	titles := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = Cell{Text: c.Title, Style: Faint}
	}
	line(titles)
	for _, row := range t.Rows {
		line(row)
	}
	return lines
}

// layout returns the widths of all columns, and which of them are shown.
func (t Table) layout(width int) (widths, shown []int) {
	widths = make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = Width(c.Title)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], Width(OneLine(row[i].Text)))
		}
		shown = append(shown, i)
	}
	excess := func(with []int) int {
		total := len(gap) * (len(shown) - 1)
		for _, i := range shown {
			total += with[i]
		}
		return total - width
	}
	if width <= 0 {
		return widths, shown
	}
	// A column is left out only if cutting texts does not suffice.
	least := slices.Clone(widths)
	for i, c := range t.Columns {
		if c.Least > 0 {
			least[i] = min(widths[i], max(c.Least, Width(c.Title)))
		}
	}
	for excess(least) > 0 {
		last := slices.MaxFunc(shown, func(a, b int) int { return t.Columns[a].Optional - t.Columns[b].Optional })
		if t.Columns[last].Optional == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == last })
	}
	for excess(widths) > 0 {
		// The longest column loses one place, so that short names stay whole.
		longest := slices.MaxFunc(shown, func(a,
			b int) int {
			return spare(widths, least, a) - spare(widths, least, b)
		})
		if widths[longest] <= least[longest] {
			break
		}
		widths[longest]--
	}
	return widths, shown
}

// spare is the width of a column that may be cut, 0 for others.
func spare(widths, least []int, column int) int {
	if widths[column] <= least[column] {
		return 0
	}
	return widths[column]
}
