package transfer

import "strings"

const (
	// PageRows is the number of rows of a page: enough to make round trips and commits cheap.
	PageRows = 5000
	// pageBytes bounds the memory of a page of large rows.
	pageBytes = 8 << 20
)

// Page is a page that is being read.
type Page struct {
	Rows  []Row
	bytes int
}

// Full reports whether the page takes no further row.
func (p *Page) Full() bool { return len(p.Rows) >= PageRows || p.bytes >= pageBytes }

// Add adds a row. It replaces characters that PostgreSQL cannot store as text, which errors of handlers may contain.
func (p *Page) Add(row Row) {
	for i, value := range row {
		if text, ok := value.(string); ok {
			row[i] = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
			p.bytes += len(text)
		}
		p.bytes += 16
	}
	p.Rows = append(p.Rows, row)
}

// Statement returns the name of a statement on a table, for a prefix that says what the statement does.
func (t Table) Statement(prefix string) string {
	return prefix + "_" + strings.ReplaceAll(t.Name, " ", "_")
}
