package commandline

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/eventfile"
)

type appendedJSON struct {
	Tenant    string  `json:"tenant"`
	Stream    string  `json:"stream"`
	Positions []int64 `json:"positions"`
	Version   int64   `json:"version"`
	// Repeated reports that the key was used before: nothing was appended now.
	Repeated bool `json:"repeated"`
}

// appendFlags are the flags of events append.
type appendFlags struct {
	expect, key, causation, correlation string
	headers                             map[string]string
}

func (c eventCommands) appendCommand() *cobra.Command {
	var f appendFlags
	cmd := &cobra.Command{
		Use:   "append STREAM TYPE [BODY]",
		Short: "Append an event",
		Long: `Appends an event to a stream. The body is JSON: an argument, @FILE, or - for the standard input. Without it the body is
null. With --key, the same command can be repeated and appends once.

A program with a registry of event types refuses a type that is not registered, and a body that its Go type would not write.`,
		Example: `  millrace events append order-17 OrderPlaced '{"amount": 12}'
  millrace events append order-17 OrderPaid @paid.json --expect 1 --key payment-4711`,
		Args: cobra.RangeArgs(2, 3),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			if args[0] == "" {
				return misuse("the stream must not be empty")
			}
			expected, err := f.expected()
			if err != nil {
				return err
			}
			e := event.Event{Type: args[1], Headers: f.headers, CausationID: f.causation, CorrelationID: f.correlation}
			if len(args) > 2 {
				e.Body, err = c.readInput(args[2])
				if err != nil {
					return err
				}
				if !json.Valid(e.Body) {
					return misuse("the body is not valid JSON: %q", args[2])
				}
			}
			if err := cmp.Or(e.Validate(), c.registry().Check(e)); err != nil {
				return misuseError{err}
			}
			tenant, of, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			a, err := of.Append(ctx, args[0], expected, e)
			if err != nil {
				return err
			}
			return c.print(appendedJSON{tenant, args[0], a.Positions, a.Version, a.Repeated}, func() error {
				what := "appended"
				if a.Repeated {
					what = "appended before"
				}
				return c.say("%s: position %d, version %d of %s", what, a.Positions[0], a.Version, args[0])
			})
		}),
	}
	cmd.Flags().StringVar(&f.expect, "expect", "any", "version of the stream before: any, none or a number")
	cmd.Flags().StringVar(&f.key, "key", "", "idempotency key")
	cmd.Flags().StringToStringVar(&f.headers, "header", nil, "headers, as name=value")
	cmd.Flags().StringVar(&f.causation, "causation-id", "", "what led to the event")
	cmd.Flags().StringVar(&f.correlation, "correlation-id", "", "conversation of the event")
	return cmd
}

func (f *appendFlags) expected() (expected event.Expected, err error) {
	switch f.expect {
	case "any":
	case "none":
		expected = event.NoStream
	default:
		n, err := strconv.ParseInt(f.expect, 10, 64)
		if err != nil || n < 0 {
			return expected, misuse("--expect must be any, none or a version: %q", f.expect)
		}
		expected = event.Exact(n)
	}
	if f.key != "" {
		expected = expected.WithKey(f.key)
	}
	if err := expected.Validate(); err != nil {
		return expected, misuseError{err}
	}
	return expected, nil
}

// importChunk is how many lines one transaction appends. It is a part of the keys of an import, so it never changes.
const importChunk = 500

type importedJSON struct {
	Tenant string `json:"tenant"`
	// Events is how many were appended now, Repeated how many an earlier import of the same file had appended.
	Events   int64 `json:"events"`
	Repeated int64 `json:"repeated"`
	// Unreadable is how many the file lacks, because they could not be read when it was written.
	Unreadable int64 `json:"unreadable,omitempty"`
}

func (c eventCommands) importCommand() *cobra.Command {
	var key string
	var newTimes bool
	cmd := &cobra.Command{
		Use:   "import FILE.ndjson[.gz]",
		Short: "Append the events of an NDJSON file",
		Long: `Appends the events of a file in their order, 500 in each transaction. Each line is a JSON object with stream, type and body, and
optionally headers, causationId, correlationId and time (RFC 3339); positions and versions are assigned anew. Events keep their times.
With --new-times they get those of the import. Files of events export have this format. In other files, the member data is read as the
body, and the member at as a header. The file may be compressed by gzip.

An import that was interrupted can be repeated: it continues where it ended, within the time for which the store keeps
idempotency keys (7 days). The keys begin with --key, by default the digest of the file. So importing a file twice appends its
events once, unless one of its streams was erased meanwhile, and the keys of its appends with it.

Before the first append all lines of the file are checked. If one is no event, nothing is appended. The file is read several times, so it must
not be a pipe, except with --key and without a registry of event types. The lines of a pipe are checked only as they are appended.

A file of events export may lack events that could not be read. They are named, the others are appended, and the status is 1.
Later events of their streams get other versions than they had.

A program with a registry of event types also refuses a file with a type that is not registered. Old types and all bodies are appended as
they are in the file, since it may be a copy.`,
		Example: "  millrace events import shop.ndjson.gz\n  millrace events import shop.ndjson --tenant acme --key second-time",
		Args:    cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			tenant, _, err := c.eventsOf(ctx, s)
			if err != nil {
				return err
			}
			key, err = c.readFirst(ctx, args[0], key)
			if err != nil {
				return cmp.Or(ctx.Err(), error(misuseError{err}))
			}
			imported := importedJSON{Tenant: tenant}
			err = c.importFile(ctx, s, args[0], key, newTimes, &imported)
			if err != nil {
				return fmt.Errorf("%w; %s imported before: repeat the command to continue", err,
					plural(imported.Events+imported.Repeated, "event"))
			}
			err = c.print(imported, func() error {
				text := "imported " + plural(imported.Events, "event")
				if imported.Repeated > 0 {
					text += fmt.Sprintf("; %s had been imported before", plural(imported.Repeated, "event"))
				}
				return c.say("%s", text)
			})
			if err == nil && imported.Unreadable > 0 {
				err = fmt.Errorf("the file lacks %s that could not be read when it was written",
					plural(imported.Unreadable, "event"))
			}
			return err
		}),
	}
	cmd.ValidArgsFunction = eventFiles
	cmd.Flags().BoolVar(&newTimes, "new-times", false, "the events get the times of the import")
	cmd.Flags().StringVar(&key, "key", "", "beginning of the idempotency keys, of at most 180 bytes (default: digest of the file)")
	return cmd
}

// readFirst does what must be done with a whole file before its first event is appended: it checks the lines, and
// returns the key, by default the digest. A pipe can be read only once, so its lines are not checked.
func (c eventCommands) readFirst(ctx context.Context, path, key string) (string, error) {
	if err := chunkKey(key, math.MaxInt64).Validate(); err != nil {
		return key, fmt.Errorf("--key, and the number of a chunk: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return key, err
	case info.Mode().IsRegular():
	case key == "":
		return key, readTwice(path, "its digest, which --key replaces")
	case c.types != nil:
		return key, readTwice(path, "its types")
	default:
		return key, nil
	}
	if key == "" {
		key, err = digest(path)
		if err != nil {
			return key, err
		}
	}
	return key, c.checkLines(ctx, path)
}

func readTwice(path, of string) error {
	return fmt.Errorf("%s is not a regular file, and would be read twice: for %s, and for its events", path, of)
}

// checkLines returns an error for the first line that cannot be read, or has a type that is not registered.
func (c eventCommands) checkLines(ctx context.Context, path string) error {
	lines, progress := int64(0), c.progress()
	defer progress.end()
	for r, err := range eventfile.Open(path) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.As(err, new(*eventfile.LeftOutError)) {
			continue // It is not appended.
		}
		if err != nil {
			return err
		}
		if err := c.checkType(r.Event.Type); err != nil {
			return fmt.Errorf("read %s: line %d: %w", path, r.Line, err)
		}
		lines++
		progress.show("%s checked", plural(lines, "event"))
	}
	return nil
}

// checkType returns an error if the program has a registry without that type.
func (c eventCommands) checkType(eventType string) error {
	if c.types == nil {
		return nil
	}
	_, err := c.types.Stored(eventType)
	if errors.Is(err, eventtype.ErrNotRegistered) {
		return err
	}
	return nil
}

// digest identifies the content of a file.
func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return "import/" + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// chunkKey is the idempotency key of a chunk of an import, from 0.
func chunkKey(key string, chunk int64) event.Expected {
	return event.Any.WithKey(key + "/" + strconv.FormatInt(chunk, 10))
}

// importFile appends the lines of a file in chunks. The first append of a chunk has a key: if it was used before, the
// whole chunk was appended with it.
func (c eventCommands) importFile(ctx context.Context, s store, path, key string, newTimes bool,
	imported *importedJSON) error {
	var chunk []eventfile.Record
	chunks, progress := int64(0), c.progress()
	defer progress.end()
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		expected := chunkKey(key, chunks)
		repeated := false
		err := s.inTx(ctx, imported.Tenant, func(ctx context.Context, append appendFunc) (err error) {
			repeated, err = appendChunk(ctx, chunk, expected, append)
			return err
		})
		if err != nil {
			return fmt.Errorf("lines %d to %d: %w", chunk[0].Line, chunk[len(chunk)-1].Line, err)
		}
		if repeated {
			imported.Repeated += int64(len(chunk))
		} else {
			imported.Events += int64(len(chunk))
		}
		chunks++
		progress.show("%s imported", plural(imported.Events+imported.Repeated, "event"))
		chunk = chunk[:0]
		return nil
	}
	for r, err := range eventfile.Open(path) {
		if errors.As(err, new(*eventfile.LeftOutError)) {
			imported.Unreadable++
			progress.say(err.Error())
			continue
		}
		if err != nil {
			return misuseError{err}
		}
		if newTimes {
			r.Event.Time = time.Time{}
		}
		chunk = append(chunk, r)
		if len(chunk) == importChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func appendChunk(ctx context.Context, chunk []eventfile.Record, expected event.Expected,
	append appendFunc) (repeated bool, err error) {
	for _, r := range chunk {
		appended, err := append(ctx, r.Stream, expected, r.Event)
		if err != nil {
			return false, fmt.Errorf("line %d: %w", r.Line, err)
		}
		if appended.Repeated {
			return true, nil
		}
		expected = event.Any
	}
	return false, nil
}

// writer writes to a file, compressed or not.
type writer struct {
	file *os.File
	buf  *bufio.Writer
	zip  *gzip.Writer // nil if not compressed
}

func newWriter(file *os.File, compress bool) *writer {
	w := &writer{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	if compress {
		w.zip = gzip.NewWriter(w.buf)
	}
	return w
}

func (w *writer) Write(p []byte) (int, error) {
	if w.zip != nil {
		return w.zip.Write(p)
	}
	return w.buf.Write(p)
}

func (w *writer) Close() error {
	var err error
	if w.zip != nil {
		err = w.zip.Close()
	}
	return errors.Join(err, w.buf.Flush(), w.file.Sync(), w.file.Close())
}
