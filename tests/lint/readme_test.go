package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostQuickStart is how many lines a quick start may have.
const mostQuickStart = 75

func contentOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestQuickStartOfTheReadmeIsAnExample compares the program of the README with the example in the package's
// documentation. A test of the demo builds and runs the program.
func TestQuickStartOfTheReadmeIsAnExample(t *testing.T) {
	_, section, found := strings.Cut(contentOf(t, "README.md"), "## Quick start\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, program, open := strings.Cut(section, "```go\n")
	program, _, closed := strings.Cut(program, "```")
	if !found || !open || !closed {
		t.Fatal("README.md has no quick start")
	}
	// go get alone adds no sums for the packages of stores
	if !strings.Contains(section, "\ngo mod init shop && go mod tidy\n") {
		t.Error("the quick start does not say how to get the module")
	}
	if lines := strings.Count(program, "\n"); lines > mostQuickStart {
		t.Errorf("the quick start has %d lines, more than %d", lines, mostQuickStart)
	}
	_, example, found := strings.Cut(contentOf(t, "example_test.go"), "is the quick start of the README.\n\n")
	if !found || !strings.HasSuffix(program, "\n\n"+example) {
		t.Errorf("the quick start is\n%s\nand does not end with that of example_test.go\n%s", program, example)
	}
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	link     = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	// anchored is a link with an anchor.
	anchored = regexp.MustCompile(`\]\(([^)#]*)#([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchorsOf returns the anchors of the headings of a document.
func anchorsOf(content string) map[string]bool {
	found := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(content, -1) {
		found[anchor(match[1])] = true
	}
	return found
}

func TestAnchorsInDocumentsExist(t *testing.T) {
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := 0
	for _, document := range append(documents, root+"/README.md", root+"/CHANGELOG.md", root+"/CONTRIBUTING.md") {
		for _, match := range anchored.FindAllStringSubmatch(contentOf(t, document[len(root+"/"):]), -1) {
			target := document
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(document), match[1])
			}
			if strings.Contains(match[1], "://") || !strings.HasSuffix(target, ".md") {
				continue
			}
			content, err := os.ReadFile(target)
			anchors++
			if err != nil || !anchorsOf(string(content))[match[2]] {
				t.Errorf("%s: %s has no heading #%s: %v", document, target, match[2], err)
			}
		}
	}
	if anchors < 50 {
		t.Errorf("only %d anchors were seen", anchors)
	}
}

// codeBlock is a block of code, in which nothing is a link.
var codeBlock = regexp.MustCompile("(?s)```.*?```")

func TestNamesInDocumentsExist(t *testing.T) {
	tests := testFunctions(t)
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(documents) < 3 {
		t.Fatalf("documents %v, %v", documents, err)
	}
	names := 0
	for _, document := range append(documents, root+"/README.md", root+"/CHANGELOG.md", root+"/CONTRIBUTING.md") {
		content := contentOf(t, document[len(root+"/"):])
		for _, match := range testName.FindAllStringSubmatch(content, -1) {
			names++
			if !tests[match[1]] {
				t.Errorf("%s: there is no test %s", document, match[1])
			}
		}
		for _, match := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(content, ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), match[1])); err != nil {
				t.Errorf("%s: link to nowhere: %v", document, err)
			}
		}
	}
	if names < 30 {
		t.Errorf("only %d names of tests were seen", names)
	}
}

// testFunctions are the names of all tests of the module.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(content, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// roomPath matches what looks like a path of the repository.
var roomPath = regexp.MustCompile("`((?:actors|supervisor|messages|event|projection|internal|pgstore|sqlitestore|cmd|tests|docs)/[\\w./-]+)`")

func TestContributingNamesEveryPackageAndFile(t *testing.T) {
	content := contentOf(t, "CONTRIBUTING.md")
	for _, l := range layers {
		room := strings.TrimSuffix(l.place, "/...")
		if parent, inner, ok := strings.Cut(room, "pgstore/internal/"); ok && parent == "" {
			room = inner
		}
		if room != "cmd" && room != "internal/pgtest/testmain" && !strings.Contains(content, "`"+room+"`") {
			t.Errorf("CONTRIBUTING.md does not say what %s is for", l.place)
		}
	}
	for _, match := range roomPath.FindAllStringSubmatch(content, -1) {
		if found, err := filepath.Glob(filepath.Join(root, match[1])); len(found) == 0 &&
			!strings.Contains(match[1], "*") {
			t.Errorf("CONTRIBUTING.md: there is no %s: %v", match[1], err)
		}
	}
}

func TestEveryPromiseHasTests(t *testing.T) {
	promise := regexp.MustCompile(`(?m)^(\d)\. \*\*`)
	table := contentOf(t, "docs/promises.md")
	promises := promise.FindAllStringSubmatch(contentOf(t, "README.md"), -1)
	if len(promises) != 8 {
		t.Errorf("%d promises, want 8", len(promises))
	}
	row := regexp.MustCompile("(?m)^\\| .*(?:`Test|_test\\.go)")
	for _, p := range promises {
		_, section, _ := strings.Cut(table, "\n## "+p[1]+". ")
		section, _, _ = strings.Cut(section, "\n## ")
		if !row.MatchString(section) {
			t.Errorf("promise %s has no tests in docs/promises.md", p[1])
		}
	}
}
