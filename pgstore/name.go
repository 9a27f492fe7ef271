package pgstore

import (
	"fmt"
	"unicode"

	"github.com/millrace-go/millrace/event"
)

// validName reports why name cannot name a schema of ours; nil means that it can.
func validName(what, name string, most int) error {
	if name == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if len(name) > most {
		return fmt.Errorf("%s %q is longer than %d bytes", what, name, most)
	}
	if err := event.ValidText(what, name); err != nil {
		return err
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q contains a control character", what, name)
		}
	}
	return nil
}
