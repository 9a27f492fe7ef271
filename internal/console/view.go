package console

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// View shows lines. On a terminal, a new frame replaces the previous one.
type View struct {
	Out  io.Writer
	size func() (width, height int) // nil if Out is not a terminal
	rows int                        // of the frame on the terminal
}

// NewView returns a view of an output.
func NewView(out io.Writer) *View { return &View{Out: out, size: sizeOf(out)} }

// sizeOf returns a function that returns the size of a terminal, nil if out is not a terminal that can move its cursor.
func sizeOf(out io.Writer) func() (width, height int) {
	if os.Getenv("TERM") == "dumb" {
		return nil
	}
	return anySizeOf(out)
}

// anySizeOf is sizeOf also for a terminal that cannot move its cursor.
func anySizeOf(out io.Writer) func() (width, height int) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() (width, height int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
}

// IsTerminal reports whether the output is a terminal that can move its cursor.
func (v *View) IsTerminal() bool { return v.size != nil }

// Every returns how often to show a new frame: plain, or more often on a terminal.
func (v *View) Every(plain time.Duration) time.Duration {
	if v.IsTerminal() {
		return 200 * time.Millisecond
	}
	return plain
}

// Show replaces the previous frame on a terminal. Elsewhere it prints the lines.
func (v *View) Show(lines ...string) error {
	if !v.IsTerminal() {
		return v.Print(lines...)
	}
	width, height := v.size()
	var b strings.Builder
	b.WriteByte('\r')
	if v.rows > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.rows)
	}
	b.WriteString("\x1b[J")
	frame := wrapAll(lines, width-1)
	// Lines that scroll off cannot be replaced, and the cursor needs one line.
	frame = frame[:min(len(frame), max(1, height-1))]
	for _, line := range frame {
		b.WriteString(line + "\n")
	}
	v.rows = len(frame)
	_, err := io.WriteString(v.Out, b.String())
	return err
}

// Print prints lines that later frames do not replace.
func (v *View) Print(lines ...string) error {
	v.rows = 0
	for i, line := range lines {
		lines[i] = OneLine(line)
	}
	if v.IsTerminal() {
		width, _ := v.size()
		lines = wrapAll(lines, width-1)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(v.Out, strings.Join(lines, "\n")+"\n")
	return err
}

// wrapAll wraps lines and makes each of them one line.
func wrapAll(lines []string, width int) (wrapped []string) {
	for _, line := range lines {
		wrapped = append(wrapped, Wrap(OneLine(line), width)...)
	}
	return wrapped
}
