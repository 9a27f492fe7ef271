package lint_test

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// longestLine is in columns, of which a tab has four. A line with a text of more than longText columns may be longer.
const longestLine, longText = 120, 50

func columns(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

// longLines returns the numbers of the lines of a Go file that are too long and could be broken. A long text is not
// split, nor is a word of a comment. Code in a comment, and what an example prints, stands as it is.
func longLines(content string) (numbers []int) {
	lines := strings.Split(content, "\n")
	unbroken := make(map[int]bool)
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(content))
	var s scanner.Scanner
	s.Init(file, []byte(content), nil, scanner.ScanComments)
	for printed := false; ; {
		at, kind, text := s.Scan()
		begin := files.Position(at)
		switch kind {
		case token.EOF:
			for i, line := range lines {
				if columns(line) > longestLine && !unbroken[i+1] {
					numbers = append(numbers, i+1)
				}
			}
			return numbers
		case token.STRING:
			last := begin.Line + strings.Count(text, "\n")
			for n := begin.Line; n < last; n++ {
				unbroken[n] = true
			}
			unbroken[last] = unbroken[last] || last > begin.Line || columns(text) > longText
		case token.COMMENT:
			printed = strings.HasPrefix(text, "// Output:") || strings.HasPrefix(text, "// Unordered output:") ||
				printed && strings.HasPrefix(text, "//")
			words := strings.Fields(text)
			longest := slices.MaxFunc(words, func(a, b string) int { return len(a) - len(b) })
			code := strings.HasPrefix(text, "//\t")
			unbroken[begin.Line] = unbroken[begin.Line] || printed || code || columns(longest) > longestLine-20
		default:
			printed = printed && kind == token.SEMICOLON
		}
	}
}

func TestLinesAreNotTooLong(t *testing.T) {
	for _, name := range sourceFiles(t, ".go") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range longLines(string(content)) {
			t.Errorf("%s:%d: more than %d columns", name, n, longestLine)
		}
	}
}

func TestLongLinesAreNoticed(t *testing.T) {
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbbbbbbbbb, cccccccccccccccccccccccccccccc, ddddddddddddddddddddddd"
	for content, want := range map[string][]int{
		"package p\n\nvar a, b = f(" + long + ")\n":                     {3},
		"package p\n\nfunc f() {\n\t\tg(" + long + ")\n}\n":             {4},
		"package p\n\nvar a = f(`" + long + " eeeeeeee`)\n":             nil,
		"package p\n\nvar a = `\n" + long + " eeeeeeeeeeeeeee`\n":       nil,
		"package p\n\nvar a = f(`\n`, " + long + ", eeeeeee)\n":         nil,
		"package p\n\n// " + long + " eeeeeeeee\nvar a = 1\n":           {3},
		"package p\n\nvar a = 1 // " + long + "\n":                      {3},
		"package p\n\nfunc f() {\n\t// Output:\n\t// " + long + "\n}\n": nil,
	} {
		if got := longLines(content); !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d", content, got, want)
		}
	}
}
