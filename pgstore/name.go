package pgstore

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
)

// validName reports why name cannot name a schema of ours; nil means that it can.
func validName(what, name string, most int) error {
	if name == "" {
		return fmt.Errorf("%s must not be empty", what)
	}
	if len(name) > most {
		return fmt.Errorf("%s must be at most %d bytes: %s", what, most, excerpt.Quoted(name))
	}
	if err := valid.Text(what, name); err != nil {
		return err
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s must not contain control characters: %s", what, excerpt.Quoted(name))
		}
	}
	return nil
}

// notReserved reports why a control schema must not have that name.
func notReserved(schema string) error {
	switch {
	case schema == "information_schema", strings.HasPrefix(schema+"_", "pg_"):
		return fmt.Errorf("Options.Schema must not be %q: the server keeps that name for itself", schema)
	case schema == "public":
		// Handlers of the default tenant find tables there without naming the schema, and so would they ours: nodes, tenants.
		return fmt.Errorf("Options.Schema must not be %q: name a schema that nothing else uses", schema)
	}
	return nil
}
