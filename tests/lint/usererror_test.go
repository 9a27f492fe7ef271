package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ownErrors are the calls that return an error of a user as it is, and the files that may make them: to give it to a
// function of the user. All others use what was found when the error was taken apart.
var ownErrors = map[string][]string{
	"usercode.Open(":  {"actors/examine.go", "actors/observe.go", "internal/logging/short.go"},
	"usercode.Catch(": {"internal/engine/handler/chain.go"},
	"usererror.Open(": {"internal/usercode/taken.go"},
}

func TestErrorsOfUsersAreNotLookedAtTwice(t *testing.T) {
	found := make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel("../..", path)
		for call, files := range ownErrors {
			if !strings.Contains(string(text), call) {
				continue
			}
			found[call] = true
			if !slices.Contains(files, name) {
				t.Errorf("%s calls %s…)", name, call)
			}
		}
		return err
	})
	if err != nil || len(found) != len(ownErrors) {
		t.Errorf("found %v: %v", found, err)
	}
}
