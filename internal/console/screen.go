package console

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Colours reports whether an output shows colours: it is a terminal, and the environment variable NO_COLOR is not set
// (https://no-color.org).
func Colours(out io.Writer) bool { return os.Getenv("NO_COLOR") == "" && sizeOf(out) != nil }

// TerminalWidth returns the width of an output that is a terminal, 0 for others.
func TerminalWidth(out io.Writer) int {
	if size := anySizeOf(out); size != nil {
		width, _ := size()
		return width
	}
	return 0
}

// Table prints a table. On a terminal it fits the width, and may have colours.
func (v *View) Table(t Table) error {
	_, err := fmt.Fprintln(v.Out, strings.Join(t.Lines(TerminalWidth(v.Out), Colours(v.Out)), "\n"))
	return err
}

// Screen shows frames that fill a terminal. What was on the terminal before comes back when the screen is closed.
type Screen struct {
	out  io.Writer
	size func() (width, height int)
	open bool
}

// NewScreen returns a screen, and false if the output is not a terminal that can move its cursor.
func NewScreen(out io.Writer) (*Screen, bool) {
	size := sizeOf(out)
	return &Screen{out: out, size: size}, size != nil
}

// Size returns the size of the next frame.
func (s *Screen) Size() (width, height int) { return s.size() }

// Show shows a frame. The lines must fit the width. Those that do not fit the height are not shown.
func (s *Screen) Show(lines []string) error {
	var b strings.Builder
	if !s.open {
		s.open = true
		b.WriteString("\x1b[?1049h\x1b[?25l") // the alternate screen, without a cursor
	}
	_, height := s.size()
	b.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

// Close shows what was on the terminal before the first frame.
func (s *Screen) Close() error {
	if !s.open {
		return nil
	}
	s.open = false
	_, err := io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	return err
}
