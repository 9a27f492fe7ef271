package sqlitestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

// Nothing of what was erased is left in the bytes of the file and its log, whether the values were on the page of their
// row or on pages of their own.
func TestErasedBytesAreGoneFromTheFile(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	const secret = "ada@example.org"
	for i := range 200 {
		long := strings.Repeat(secret+" ", i*20)
		e := event.Event{Type: "T", Body: must(json.Marshal(map[string]string{"mail": secret, "text": long}))(t),
			Headers: map[string]string{"user": secret}, CausationID: secret, CorrelationID: secret}
		for _, stream := range []string{"ada", "bob"} {
			if stream == "bob" {
				e = event.Event{Type: "T", Body: json.RawMessage(`"nothing"`)}
			}
			must(store.Append(ctx, stream, event.Any.WithKey(fmt.Sprint(secret, stream, i)), e))(t)
		}
	}
	id := must(store.Alias(ctx, secret))(t)
	if found := bytesIn(t, store.path, secret); found == 0 {
		t.Fatal("the file has no secret")
	}
	for _, stream := range []string{"ada", "bob", id} {
		must(store.EraseStream(ctx, stream, "request 17"))(t)
	}
	if found := bytesIn(t, store.path, secret); found != 0 {
		t.Errorf("%d bytes of the file and its log have the secret", found)
	}
	if err := quickCheck(ctx, store); err != nil {
		t.Error(err)
	}
}

func quickCheck(ctx context.Context, store *Store) error {
	var found string
	err := store.readers.QueryRowContext(ctx, queries.Text("quick_check")).Scan(&found)
	if err == nil && found != "ok" {
		err = errors.New(found)
	}
	return err
}

// bytesIn counts a text in a file and its log.
func bytesIn(t *testing.T, path, text string) (n int) {
	t.Helper()
	for _, name := range []string{path, path + "-wal"} {
		n += bytes.Count(must(os.ReadFile(name))(t), []byte(text))
	}
	return n
}

// While another connection reads an older state of the file, the log cannot be emptied. The error says that the events
// are redacted, and a repeat empties the log.
func TestErasureThatCannotEmptyTheLogSaysSo(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const secret = "ada@example.org"
	must(store.Append(testContext(t), "ada", event.Any,
		event.Event{Type: "T", Body: json.RawMessage(`"` + secret + `"`)}))(t)
	reader := must(store.readers.BeginTx(testContext(t), nil))(t)
	var n int
	if err := reader.QueryRowContext(testContext(t), "select count(*) from millrace_events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		defer cancel()
		for ctx.Err() == nil { // until the events are redacted
			if all, err := store.Erasures(ctx); err != nil || len(all) > 0 && !all[0].EndedAt.IsZero() {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	erased, err := store.EraseStream(ctx, "ada", "request 17")
	cancel()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still in the write-ahead log") ||
		erased.Events != 1 {
		t.Errorf("%+v, %v", erased, err)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	must(store.EraseStream(testContext(t), "ada", "request 17"))(t)
	if found := bytesIn(t, store.path, secret); found != 0 {
		t.Errorf("the secret is there %d times", found)
	}
}

// makeErasures creates the table of erasures.
func makeErasures(t *testing.T, store *Store) {
	t.Helper()
	must(store.EraseStream(testContext(t), must(store.Alias(testContext(t), "erased"))(t), "request 17"))(t)
}
