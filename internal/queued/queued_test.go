package queued

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// encodeText encodes texts, and refuses everything else.
func encodeText(arg any) (encoded any, size int, err error) {
	text, is := arg.(string)
	if !is {
		return nil, 0, io.ErrNoProgress
	}
	return "<" + text + ">", len(text), nil
}

// admitAllBut refuses one statement.
func admitAllBut(refused string) func(sql string) error {
	return func(sql string) error {
		if sql == refused {
			return io.ErrClosedPipe
		}
		return nil
	}
}

func newQueue() Queue { return New(admitAllBut("refused"), encodeText) }

func at(position int64) event.Envelope { return event.Envelope{Position: position} }

func TestQueueKeepsStatementsInOrderWithTheirEvents(t *testing.T) {
	q := newQueue()
	q.Exec("a")
	second := q.At(at(2))
	second.Exec("b", "x", "yz")
	q.At(at(3)).Expect(1).Exec("c")
	second.Expect(0).Exec("d")
	q.Exec("e")
	statements, size, err := End(q)
	want := []Statement{{SQL: "a", rows: anyRows}, {SQL: "b", Args: []any{"<x>", "<yz>"}, At: 2, rows: anyRows},
		{SQL: "c", At: 3, rows: 1},
		{SQL: "d", At: 2}, {SQL: "e", rows: anyRows}}
	same := slices.EqualFunc(statements, want, func(a, b Statement) bool {
		return a.SQL == b.SQL && slices.Equal(a.Args, b.Args) && a.At == b.At && a.rows == b.rows
	})
	if err != nil || !same || size != len("abcde")+len("xyz")+5*perStatement+2*perArgument {
		t.Errorf("%+v with %d bytes, %v; want %+v", statements, size, err, want)
	}
	if Plain(statements) || !Plain(statements[:2]) || !Plain(nil) {
		t.Error("whether statements must change a certain number of rows is wrong")
	}
}

func TestStatementMustChangeTheExpectedRows(t *testing.T) {
	for _, test := range []struct {
		s    Statement
		rows int64
		fine bool
	}{
		{Statement{rows: anyRows}, 0, true},
		{Statement{rows: anyRows, At: 7}, 3, true},
		{Statement{rows: 0}, 0, true},
		{Statement{rows: 2}, 2, true},
		{Statement{rows: 0}, 1, false},
		{Statement{rows: 2, At: 7}, 1, false},
	} {
		test.s.SQL = "update x"
		err := test.s.Changed(test.rows)
		if (err == nil) != test.fine || err != nil && projection.FailedPosition(err) != test.s.At {
			t.Errorf("%+v changed %d rows: %v", test.s, test.rows, err)
		}
		if says := fmt.Sprintf(`"update x" changed %d rows, %d expected`, test.rows, test.s.rows); err != nil &&
			!strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if err := (Statement{At: 7}).Named(io.EOF); !errors.Is(err, io.EOF) || projection.FailedPosition(err) != 7 {
		t.Error(err)
	}
	if err := (Statement{}).Named(io.EOF); err != io.EOF {
		t.Error(err)
	}
	if err := (Statement{At: 7}).Named(nil); err != nil {
		t.Error(err)
	}
}

// The first statement that cannot be queued decides. It names its event, and an argument its number.
func TestStatementThatCannotBeQueuedFailsTheHandler(t *testing.T) {
	for name, test := range map[string]struct {
		exec func(q Queue)
		is   error
		says string
	}{
		"refused":  {func(q Queue) { q.Exec("refused") }, io.ErrClosedPipe, ""},
		"argument": {func(q Queue) { q.Exec("insert", "x", 7) }, io.ErrNoProgress, `argument 2 of "insert": `},
	} {
		for _, position := range []int64{0, 5} {
			q := newQueue()
			q.At(at(4)).Exec("a")
			test.exec(q.At(at(position)))
			q.At(at(6)).Exec("b", 8)
			if _, _, err := End(q); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) ||
				projection.FailedPosition(err) != position {
				t.Errorf("%s at %d: %v", name, position, err)
			}
		}
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	text := strings.Repeat("x", MaxBytes)
	const half = MaxBytes / 2
	for name, fill := range map[string]func(q Queue){
		"arguments": func(q Queue) { q.Exec("", text[:half], text[:half-perStatement-2*perArgument]) },
		"statement": func(q Queue) { q.Exec(text[:MaxBytes-perStatement]) },
		"both": func(q Queue) {
			q.Exec(text[:half-perStatement])
			q.Exec("", text[:half-perStatement-perArgument])
		},
		"statements": func(q Queue) {
			q.Exec(text[:MaxBytes-1000*perStatement])
			for range 999 {
				q.Exec("")
			}
		},
	} {
		q := newQueue()
		fill(q)
		if l := q.list; l.err != nil || l.bytes != MaxBytes {
			t.Errorf("%s: %d bytes of %d, %v", name, l.bytes, MaxBytes, l.err)
		}
		q.At(at(5)).Exec("")
		if _, size, err := End(q); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") ||
			projection.FailedPosition(err) != 5 || size != MaxBytes {
			t.Errorf("%s: one statement too many: %d bytes, %v", name, size, err)
		}
	}
	for name, exec := range map[string]func(q Queue){
		"argument":  func(q Queue) { q.Exec("", text[:MaxBytes-perStatement-perArgument+1]) },
		"statement": func(q Queue) { q.Exec(text[:MaxBytes-perStatement+1]) },
	} {
		q := newQueue()
		exec(q)
		if _, _, err := End(q); err == nil {
			t.Errorf("%s: one byte too many is queued", name)
		}
	}
}

// A handler may have left goroutines behind, or been abandoned.
func TestQueueKeepsNothingAfterItsEnd(t *testing.T) {
	q := newQueue()
	q.Exec("a")
	statements, _, err := End(q)
	if err != nil {
		t.Fatal(err)
	}
	q.At(at(1)).Exec("b")
	if len(statements) != 1 {
		t.Errorf("%+v", statements)
	}
	again, size, err := End(q)
	if len(again) != 1 || size != 1+perStatement || !errors.Is(err, ErrEnded) {
		t.Errorf("%+v with %d bytes, %v", again, size, err)
	}
}

func TestQueueIsUsedByGoroutinesAtOnce(t *testing.T) {
	q := newQueue()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 100 {
				q.At(at(int64(i+1))).Exec("a", "b")
			}
		})
	}
	group.Wait()
	if statements, size, err := End(q); err != nil || len(statements) != 800 ||
		size != 800*(2+perStatement+perArgument) {
		t.Errorf("%d statements with %d bytes, %v", len(statements), size, err)
	}
}
