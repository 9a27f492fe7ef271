package lint_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// codeOf are the files whose tests compile the Go code of each document, and run it where that is possible. A test of
// the demo runs the quick start of the README.
var codeOf = map[string][]string{
	"docs/changing.md":   {"tests/postgres/changing_doc_test.go", "tests/changing_doc_test.go"},
	"docs/cli.md":        {"examples/orders/release2.go"},
	"docs/commands.md":   {"tests/commands_doc_test.go"},
	"docs/delivery.md":   {"tests/delivery_doc_test.go", "example_deliver_test.go", "example_deliverroute_test.go"},
	"docs/deployment.md": {"example_health_test.go", "tests/pages/deployment_doc_test.go"},
	"docs/failures.md":   {"tests/postgres/failures_doc_test.go"},
	"docs/guide.md":      {"tests/postgres/guide_doc_test.go"},
	"docs/monitoring.md": {"millraceotel/monitoring_doc_test.go"},
	"docs/moving.md":     {"tests/moves/moving_doc_test.go"},
	"docs/partitions.md": {"tests/postgres/partitions_doc_test.go"},
	"docs/restoring.md":  {"tests/runbook/restoring_test.go"},
	"docs/sagas.md":      {"tests/pages/sagas_doc_test.go"},
	"docs/erasure.md":    {"tests/pages/erasure_doc_test.go"},
	"docs/shapes.md":     {"tests/pages/shapes_doc_test.go"},
	"docs/sqlite.md":     {"sqlitestore/guide_test.go"},
	"docs/stopping.md":   {"tests/stopping_doc_test.go"},
	"docs/tenants.md":    {"tests/postgres/tenants_doc_test.go"},
	"docs/testing.md":    {"millracetest/testing_doc_test.go"},
	"docs/tutorial.md": {"examples/orders/orders.go", "examples/orders/process.go", "examples/orders/main.go",
		"examples/orders/postgres.go", "examples/orders/main_test.go",
		"examples/orders/payments.go", "examples/orders/release2.go", "examples/orders/release1/events.go"},
}

// unindented returns the lines of a text without the indentation of a block in a function.
func unindented(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return "\n" + strings.Join(lines, "\n")
}

// goBlocks returns the blocks of Go code of a document.
func goBlocks(document string) (blocks []string) {
	for _, block := range strings.Split(document, "```go\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, code)
	}
	return blocks
}

// untested returns the blocks of a document that stand in none of the files.
func untested(document string, files ...string) (blocks []string) {
	for _, block := range goBlocks(document) {
		found := false
		for _, file := range files {
			found = found || strings.Contains(unindented(file), unindented(block))
		}
		if !found {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

func TestCodeOfDocumentsIsTested(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(documents, filepath.Join(root, "CONTRIBUTING.md")) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, file := range codeOf[filepath.ToSlash(name)] {
			files = append(files, contentOf(t, file))
		}
		document := contentOf(t, name)
		for _, block := range untested(document, files...) {
			t.Errorf("%s has code that stands in none of %v:\n%s", name, codeOf[name], block)
		}
		if len(files) > 0 && len(goBlocks(document)) == 0 {
			t.Errorf("%s has no Go code, and codeOf has files for it", name)
		}
	}
	before, section, _ := strings.Cut(contentOf(t, "README.md"), "\n## Quick start\n")
	if _, after, _ := strings.Cut(section, "\n## "); len(goBlocks(before+after)) > 0 {
		t.Error("README.md has Go code outside of the quick start")
	}
}

// examples/server contains the code of docs/stopping.md, which tests run.
func TestServerOfTheGuideHasTheCodeOfItsDocument(t *testing.T) {
	for _, block := range untested(contentOf(t, "docs/stopping.md"), contentOf(t, "examples/server/main.go")) {
		t.Errorf("docs/stopping.md has code that examples/server has not:\n%s", block)
	}
}

func TestCodeOfADocumentThatIsNotTestedIsNoticed(t *testing.T) {
	const document = "text\n```go\na := 1\nif a > 0 {\n\tb()\n}\n```\n```sql\nselect 1;\n```\n```go\nc()\n```\n"
	const file = "package p\n\nfunc f() {\n\ta := 1\n\tif a > 0 {\n\t\tb()\n\t}\n}\n"
	if got := untested(document, file, "func g() {\n\tc()\n}\n"); len(got) != 0 {
		t.Errorf("%q are said to be untested", got)
	}
	for _, other := range []string{"", strings.Replace(file, "a > 0", "a > 1", 1),
		strings.Replace(file, "a := 1", "aa := 1", 1)} {
		if got := untested(document, other, "func g() {\n\tc()\n}\n"); len(got) != 1 {
			t.Errorf("with %q, %q are said to be untested", other, got)
		}
	}
}
