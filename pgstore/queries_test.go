package pgstore

import (
	"io/fs"
	"strings"
	"testing"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(queryFiles, "queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := fs.ReadFile(queryFiles, file)
		if err != nil {
			t.Fatal(err)
		}
		var header strings.Builder
		for line := range strings.Lines(string(raw)) {
			if !strings.HasPrefix(line, "--") {
				break
			}
			header.WriteString(strings.ToLower(line))
		}
		for _, what := range []string{"lock", "index"} {
			if !strings.Contains(header.String(), what) {
				t.Errorf("the comment of %s says nothing of %s", file, what)
			}
		}
	}
}
