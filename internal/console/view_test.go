package console

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFrameReplacesThePreviousFrame(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := &View{Out: &out, size: func() (int, int) { return 40, 6 }}
	lines := []string{"a short line", strings.Repeat("word ", 12), "x", "y", "z", "does not fit"}
	for range 2 {
		if err := v.Show(lines...); err != nil {
			t.Fatal(err)
		}
	}
	first, second, _ := strings.Cut(strings.TrimPrefix(out.String(), "\r\x1b[J"), "\r")
	if n := strings.Count(first, "\n"); n != 5 {
		t.Errorf("%d lines on a terminal of 6, want 5", n)
	}
	if want := fmt.Sprintf("\x1b[5A\x1b[J%s", first); second != want {
		t.Errorf("the second frame is %q, want %q", second, want)
	}
	for line := range strings.Lines(first) {
		if len(line) > 40 {
			t.Errorf("line %q is wider than the terminal", line)
		}
	}
}

func TestPrintedLinesStay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := &View{Out: &out, size: func() (int, int) { return 40, 6 }}
	for _, show := range []func(...string) error{v.Show, v.Print, v.Show} {
		if err := show("one line"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "\r\x1b[Jone line\none line\n\r\x1b[Jone line\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestWithoutATerminalLinesAreAppended(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := NewView(&out)
	long := strings.Repeat("word ", 50)
	if err := v.Show(long, "two\nlines"); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), long+"\ntwo; lines\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestLinesAreWrappedBetweenWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"ten runes!", 10, []string{"ten runes!"}},
		{"more than ten", 10, []string{"more than", "  ten"}},
		{"äöüßäöüßäöüßäöüß", 10, []string{"äöüßäöüßäö", "  üßäöüß"}},
		{"a b c", 0, []string{"a b", "  c"}},
	} {
		if got := Wrap(test.line, test.width); !slices.Equal(got, test.want) {
			t.Errorf("%q at %d: got %q, want %q", test.line, test.width, got, test.want)
		}
	}
}
