package commandline

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A program may have arguments of its own.
func TestWithoutArgumentsThoseOfTheProcessAreNotRead(t *testing.T) {
	before := os.Args
	defer func() { os.Args = before }()
	os.Args = []string{before[0], "serve", "--port", "80"}
	for name, args := range map[string][]string{"nil": nil, "empty": {}} {
		var out, errs bytes.Buffer
		status := execute(t.Context(), args, Options{}, strings.NewReader(""), &out, &errs)
		if status != done || errs.Len() > 0 || !strings.Contains(out.String(), "Available Commands:") {
			t.Errorf("%s: status %d, %s%s", name, status, out.String(), errs.String())
		}
	}
}
