package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// canvas is a place on a terminal. What is drawn there is drawn over what was drawn before.
type canvas struct {
	out   io.Writer
	size  func() (width, height int)
	lines int
}

// newCanvas returns nil where out is no terminal that can do that.
func newCanvas(out io.Writer) *canvas {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &canvas{out: out, size: func() (width, height int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
}

func (c *canvas) draw(lines []string) error {
	width, height := c.size()
	// What has scrolled off cannot be written over, and one line is the cursor's.
	lines = lines[:min(len(lines), max(1, height-1))]
	var b strings.Builder
	b.WriteByte('\r')
	if c.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", c.lines)
	}
	b.WriteString("\x1b[J")
	for _, line := range lines {
		b.WriteString(cut(line, width-1))
		b.WriteByte('\n')
	}
	c.lines = len(lines)
	_, err := io.WriteString(c.out, b.String())
	return err
}

func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), max(width, 0))])
}
