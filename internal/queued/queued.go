// Package queued has the statements of handlers that only write. A handler queues them without a connection, and the
// store executes them in the transaction that advances the checkpoint.
package queued

import (
	"errors"
	"fmt"
	"sync"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// MaxBytes is how many bytes of statements and arguments one call of a handler may queue.
const MaxBytes = 64 << 20

// perStatement and perArgument are the bytes that a statement and an argument count beside their texts: about what they
// take in memory.
const perStatement, perArgument = 96, 16

// mostArgs is how many arguments a statement of PostgreSQL can have. SQLite names a lower limit itself.
const mostArgs = 65535

// ErrEnded is why a statement is not kept that is queued after the handler has returned.
var ErrEnded = errors.New("the queue was used after its handler had returned")

// anyRows is the number of rows of a statement that may change any number.
const anyRows = -1

// Queue takes the statements of a handler that only writes. Nothing is sent while the handler runs, so Exec returns
// nothing: if a statement fails, the whole batch is rolled back and tried again, as if the handler had returned the
// error. A Queue must not be used after the handler has returned.
type Queue struct {
	list *list
	// at is the position of the event to which statements belong, 0 if they belong to none. rows is how many rows they
	// must change.
	at, rows int64
}

// Statement is a statement of a Queue.
type Statement struct {
	SQL string
	// Args are encoded. What they are is known to the store.
	Args []any
	// At is the position of the event to which it belongs, 0 if it belongs to none.
	At   int64
	rows int64
}

// Encode returns an argument as the store sends it, and its size in bytes. The result must not share memory with the
// argument.
type Encode func(arg any) (encoded any, size int, err error)

// list is shared by a Queue and its copies.
type list struct {
	admit  func(sql string) error
	encode Encode

	mu         sync.Mutex
	statements []Statement
	bytes      int
	err        error
	ended      bool
}

// New returns an empty Queue. admit returns why a statement is refused, or nil.
func New(admit func(sql string) error, encode Encode) Queue {
	return Queue{list: &list{admit: admit, encode: encode}, rows: anyRows}
}

// Exec queues a statement. Its arguments are encoded at once, so they may be changed afterwards. If an argument cannot
// be encoded, or too much is queued, the handler fails.
func (q Queue) Exec(sql string, args ...any) {
	l := q.list
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if err := l.add(q, sql, args); err != nil {
		l.err = Statement{At: q.at}.Named(err)
	}
}

func (l *list) add(q Queue, sql string, args []any) error {
	if l.ended {
		return ErrEnded
	}
	if err := l.admit(sql); err != nil {
		return err
	}
	if len(args) > mostArgs {
		return fmt.Errorf("%s has %d arguments, the limit is %d", excerpt.Quoted(sql), len(args), mostArgs)
	}
	if err := l.takeUp(perStatement + len(sql)); err != nil {
		return err
	}
	s := Statement{SQL: sql, Args: make([]any, len(args)), At: q.at, rows: q.rows}
	for i, arg := range args {
		encoded, size, err := l.encode(arg)
		if err != nil {
			return fmt.Errorf("argument %d of %s: %w", i+1, excerpt.Quoted(sql), err)
		}
		if err := l.takeUp(perArgument + size); err != nil {
			return err
		}
		s.Args[i] = encoded
	}
	l.statements = append(l.statements, s)
	return nil
}

// takeUp counts bytes that are queued.
func (l *list) takeUp(bytes int) error {
	if l.bytes+bytes > MaxBytes {
		return fmt.Errorf("more than %d MiB of statements are queued", MaxBytes>>20)
	}
	l.bytes += bytes
	return nil
}

// At returns the Queue for statements that belong to an event. If one of them fails, the error names the event, and no
// other event is tried again alone. Handlers of single events need no At.
func (q Queue) At(e event.Envelope) Queue {
	q.at = e.Position
	return q
}

// Expect returns the Queue for statements each of which fails unless it changes this number of rows.
func (q Queue) Expect(rows int64) Queue {
	q.rows = rows
	return q
}

// End returns what was queued, with its size in bytes, or why something could not be. Nothing can be queued afterwards.
func End(q Queue) (statements []Statement, size int, err error) {
	l := q.list
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	return l.statements, l.bytes, l.err
}

// Changed returns an error unless the statement may change this number of rows.
func (s Statement) Changed(rows int64) error {
	if s.rows == anyRows || s.rows == rows {
		return nil
	}
	return s.Named(fmt.Errorf("%s changed %d rows, %d expected", excerpt.Quoted(s.SQL), rows, s.rows))
}

// Plain reports whether none of the statements must change a certain number of rows.
func Plain(statements []Statement) bool {
	for i := range statements {
		if statements[i].rows != anyRows {
			return false
		}
	}
	return true
}

// Named returns an error with the event to which the statement belongs.
func (s Statement) Named(err error) error {
	if err == nil || s.At == 0 {
		return err
	}
	return projection.At(s.At, err)
}
