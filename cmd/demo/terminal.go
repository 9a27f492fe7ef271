package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/millrace-go/millrace/internal/program"
)

// view shows lines. On a terminal, a new frame replaces the last one.
type view struct {
	out  io.Writer
	size func() (width, height int) // nil if out is not a terminal
	rows int                        // of the frame on the terminal
}

func newView(out io.Writer) *view {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return &view{out: out}
	}
	return &view{out: out, size: func() (width, height int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
}

func (v *view) isTerminal() bool { return v.size != nil }

// every returns how often to show a new frame: plain, or more often on a terminal.
func (v *view) every(plain time.Duration) time.Duration {
	if v.isTerminal() {
		return 200 * time.Millisecond
	}
	return plain
}

// show replaces the last frame on a terminal. Elsewhere it prints the lines.
func (v *view) show(lines ...string) error {
	if !v.isTerminal() {
		return v.print(lines...)
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
	_, err := io.WriteString(v.out, b.String())
	return err
}

// print prints lines that later frames do not replace.
func (v *view) print(lines ...string) error {
	v.rows = 0
	for i, line := range lines {
		lines[i] = program.OneLine(line)
	}
	if v.isTerminal() {
		width, _ := v.size()
		lines = wrapAll(lines, width-1)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(v.out, strings.Join(lines, "\n")+"\n")
	return err
}

func wrapAll(lines []string, width int) (wrapped []string) {
	for _, line := range lines {
		wrapped = append(wrapped, wrap(program.OneLine(line), width)...)
	}
	return wrapped
}

// wrap breaks a line between words and indents the parts after the first.
func wrap(line string, width int) (lines []string) {
	const indent = "  "
	width = max(width, 2*len(indent))
	text := []rune(line)
	for len(text) > width {
		at := width
		for i := width; i > len(indent); i-- {
			if text[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(text[:at]), " "))
		text = []rune(indent + strings.TrimLeft(string(text[at:]), " "))
	}
	return append(lines, string(text))
}
