// Package sqlfile loads statements from files.
package sqlfile

import (
	"io/fs"
	"maps"
	"path"
	"strings"
)

// Queries are statements by name, without comments.
type Queries map[string]string

// Load returns the statements of queries/*.sql and control/*.sql, each under the name of its file. It panics if there
// are none.
func Load(files fs.FS) Queries {
	queries := load(files, "queries")
	if len(queries) == 0 {
		panic("there are no statements in queries/*.sql")
	}
	maps.Copy(queries, load(files, "control"))
	return queries
}

// load returns the statements of a folder.
func load(files fs.FS, folder string) Queries {
	queries := make(Queries)
	found, _ := fs.Glob(files, folder+"/*.sql")
	for _, file := range found {
		raw, err := fs.ReadFile(files, file)
		if err != nil {
			panic(err)
		}
		queries[strings.TrimSuffix(path.Base(file), ".sql")] = withoutComments(string(raw))
	}
	return queries
}

// Text returns the statement of the file name.sql. It panics if there is no such file.
func (q Queries) Text(name string) string {
	text, ok := q[name]
	if !ok {
		panic("there is no statement " + name)
	}
	return text
}

// withoutComments removes the lines that are comments, so that the database does not parse them with every call.
func withoutComments(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			lines = append(lines, trimmed)
		}
	}
	return strings.Join(lines, "\n")
}
