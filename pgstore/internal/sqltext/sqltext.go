// Package sqltext puts names and values into the text of statements.
package sqltext

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Fill replaces placeholders, all at once: a value may look like another placeholder.
func Fill(sql string, oldnew ...string) string { return strings.NewReplacer(oldnew...).Replace(sql) }

// Name quotes a name.
func Name(name string) string { return pgx.Identifier{name}.Sanitize() }

// String quotes a string. It relies on standard_conforming_strings, which Open checks.
func String(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
