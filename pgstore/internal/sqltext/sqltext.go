// Package sqltext prepares the text of statements: it loads them from files, and quotes what is put into them.
package sqltext

import (
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Load returns the statement of queries/name.sql without its comments. It panics if there is no such file, which is a mistake
// in the package that embeds the files.
func Load(files fs.FS, name string) string {
	raw, err := fs.ReadFile(files, "queries/"+name+".sql")
	if err != nil {
		panic(err)
	}
	return withoutComments(string(raw))
}

// withoutComments drops the lines that only comment, which the server need not parse with every call.
func withoutComments(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			lines = append(lines, trimmed)
		}
	}
	return strings.Join(lines, "\n")
}

// Fill replaces placeholders, all at once: a value may look like another placeholder.
func Fill(sql string, oldnew ...string) string { return strings.NewReplacer(oldnew...).Replace(sql) }

// Name quotes a name.
func Name(name string) string { return pgx.Identifier{name}.Sanitize() }

// String quotes a string. The store refuses servers that do not take backslashes as they are.
func String(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
