package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Commands, the command line, examples and the test kit of users need nothing but what is public: no driver of a store.
func TestProgramsUseNoDriver(t *testing.T) {
	checked := 0
	for _, name := range sourceFiles(t, ".go") {
		place, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if place != "cmd" && place != "commandline" && place != "examples" && place != "millracetest" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		checked++
		if strings.Contains(string(content), ".Engine()") {
			t.Errorf("%s uses the driver of a store", name)
		}
	}
	if checked < 50 {
		t.Errorf("only %d files were checked", checked)
	}
}
