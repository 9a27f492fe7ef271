package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/valid"
)

// maxLine is the longest line of a file. An event is in memory several times.
const maxLine = 16 << 20

// line is one line of a file. Data is kept as it is, so that no number becomes a float.
type line struct {
	Stream string          `json:"stream"`
	Type   string          `json:"type"`
	At     string          `json:"at"`
	Data   json.RawMessage `json:"data"`
}

// readFile reads a file with one JSON object in each line, plain or compressed by gzip.
func readFile(path string) source {
	return func(yield func(record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(record{}, fmt.Errorf("open the input: %w", err))
			return
		}
		defer file.Close()
		for r, err := range readLines(file) {
			if err != nil {
				err = fmt.Errorf("read %s: %w", path, err)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// readLines reads line by line and ignores empty lines. Errors have the line's number, from 1.
func readLines(from io.Reader) source {
	return func(yield func(record, error) bool) {
		plain, err := decompressed(from)
		if err != nil {
			yield(record{}, err)
			return
		}
		lines := bufio.NewScanner(plain)
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		number := 1
		for ; lines.Scan(); number++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			r, err := parse(text)
			if err != nil {
				err = fmt.Errorf("line %d: %w", number, err)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(record{}, fmt.Errorf("line %d: longer than %d bytes", number, maxLine))
		} else if err != nil {
			yield(record{}, fmt.Errorf("line %d: %w", number, err))
		}
	}
}

func decompressed(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(from)
	if start, _ := buffered.Peek(2); !bytes.Equal(start, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return plain, nil
}

// parse decodes a line. The record does not refer to text.
func parse(text []byte) (record, error) {
	if !utf8.Valid(text) {
		return record{}, errors.New("not valid UTF-8")
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return record{}, fmt.Errorf("not a JSON object with stream, type, at and data: %w", err)
	}
	if l.Stream == "" {
		return record{}, errors.New("stream is missing or empty")
	}
	if err := valid.Text("stream", l.Stream); err != nil {
		return record{}, err
	}
	e := event.Event{Type: l.Type, Body: l.Data}
	if l.At != "" {
		// This is when it happened; the store records when it was appended.
		e.Headers = map[string]string{"at": l.At}
	}
	if l.Type == paid {
		if _, err := amountOf(l.Data); err != nil {
			return record{}, fmt.Errorf("data of a payment: %w", err)
		}
	}
	return record{stream: l.Stream, event: e}, e.Validate()
}
