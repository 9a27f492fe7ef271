package pgstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"queries/*.sql", "internal/*/queries/*.sql"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		raw := must(os.ReadFile(file))(t)
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
