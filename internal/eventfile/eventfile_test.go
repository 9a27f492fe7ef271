package eventfile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/valid"
)

const twoLines = `{"stream":"a","type":"T","at":"2017-01-09T08:49:50Z","data":{"amount":26.80,"big":12345678901234567890.12,"role":null}}

{"stream":"b","type":"U","data":[1]}`

func TestInputIsKeptAsGiven(t *testing.T) {
	t.Parallel()
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	z.Write([]byte(twoLines))
	z.Close()
	for name, content := range map[string][]byte{"plain.ndjson": []byte(twoLines), "log.ndjson.gz": compressed.Bytes(),
		"misnamed.gz": []byte(twoLines + "\n")} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it can be walked through again
			var all []Record
			for r, err := range Open(path) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, r)
			}
			if len(all) != 2 {
				t.Fatalf("%s: %d events, want 2", name, len(all))
			}
			a, b := all[0], all[1]
			if a.Stream != "a" || a.Event.Type != "T" || a.Event.Headers["at"] != "2017-01-09T08:49:50Z" ||
				string(a.Event.Body) != `{"amount":26.80,"big":12345678901234567890.12,"role":null}` {
				t.Errorf("%s: first event is %+v, body %s", name, a, a.Event.Body)
			}
			if b.Stream != "b" || b.Event.Type != "U" || b.Event.Headers != nil || string(b.Event.Body) != `[1]` {
				t.Errorf("%s: second event is %+v", name, b)
			}
		}
	}
}

func TestBadLineIsNamedByItsNumber(t *testing.T) {
	t.Parallel()
	good := `{"stream":"a","type":"T","data":{}}` + "\n"
	for name, test := range map[string]struct{ text, says string }{
		"no JSON": {good + "\n" + "nonsense\n" + good, "line 3: not a JSON object"},
		"two bodies": {
			good + `{"stream":"a","type":"T","body":1,"data":2}`, "line 2: body and data exclude each other",
		},
		"two values":  {good + `{"stream":"a","type":"T"} 1`, "line 2: not a JSON object"},
		"no object":   {`["a"]`, "line 1: not a JSON object"},
		"no stream":   {good + good + `{"type":"T","data":{}}`, "line 3: stream is missing or empty"},
		"no type":     {good + `{"stream":"a","data":{}}`, "line 2: event type is empty"},
		"not UTF-8":   {good + "{\"stream\":\"a\",\"type\":\"T\",\"data\":\"\xff\"}", "line 2: not valid UTF-8"},
		"NUL in data": {good + `{"stream":"a","type":"T","data":"\u0000"}`, `line 2: event body contains \u0000`},
		"no time": {
			good + `{"stream":"a","type":"T","time":"yesterday"}`,
			"line 2: not a JSON object with stream, type and body: parsing time",
		},
		"year 0": {
			good + `{"stream":"a","type":"T","time":"0000-01-01T00:00:00Z"}`,
			"line 2: event time is not from year 1 to 9999",
		},
		"last day": {
			good + `{"stream":"a","type":"T","time":"9999-12-31T23:59:59Z"}`,
			"line 2: event time is not from year 1 to 9999-12-31T00:00:00Z: 9999-12-31T23:59:59Z",
		},
		"NUL where it is redacted": {
			good + `{"stream":"a","type":"T","headers":{"redacted":{"at":"\u0000"}}}`, `line 2: headers contains \u0000`,
		},
		"number where it is redacted": {
			good + `{"stream":"a","type":"T","headers":{"redacted":{"at":1e999999}}}`,
			"line 2: headers contains the number 1e999999",
		},
		"redacted and more": {
			good + `{"stream":"a","type":"T","headers":{"redacted":{"at":""},"z":"y"}}`,
			"line 2: headers of a redacted event have other members",
		},
		"redacted twice": {
			good + `{"stream":"a","type":"T","headers":{"redacted":{"at":""},"redacted":"no"}}`,
			"line 2: headers of a redacted event have other members",
		},
		"half of a surrogate pair in the stream": {
			good + `{"stream":"a\ud800","type":"T"}`, `line 2: stream contains \ud800, which is half of a surrogate pair`,
		},
		"half in the type": {good + `{"stream":"a","type":"\udc00T"}`, `line 2: type contains \udc00`},
		"half in the causation id": {
			good + `{"stream":"a","type":"T","causationId":"\ud83d\ud83d"}`, `line 2: causationId contains \ud83d`,
		},
		"half in the correlation id": {
			good + `{"stream":"a","type":"T","correlationId":"\ud800"}`, `line 2: correlationId contains \ud800`,
		},
		"half in at": {good + `{"stream":"a","type":"T","at":"\ud800"}`, `line 2: at contains \ud800`},
		"half in the name of a header": {
			good + `{"stream":"a","type":"T","headers":{"\ud800":""}}`, `line 2: headers contains \ud800`,
		},
		"half in a header": {
			good + `{"stream":"a","type":"T","headers":{"a":"\ud800"}}`, `line 2: headers contains \ud800`,
		},
		"NUL in name":  {good + `{"stream":"a\u0000","type":"T"}`, "line 2: stream"},
		"too long":     {good + strings.Repeat(" ", maxLine+1), "line 2: longer than"},
		"broken gzip":  {"\x1f\x8b garbage", "decompress"},
		"amount wrong": {good + `{"stream":"a","type":"T","data":{"amount":01}}`, "line 2: not a JSON object"},
	} {
		var failed error
		n := 0
		for _, err := range Read(strings.NewReader(test.text)) {
			if err != nil {
				failed = err
				continue
			}
			n++
		}
		if failed == nil || !strings.Contains(failed.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, failed, test.says)
		}
	}
}

func TestEventThatTheWriterCouldNotReadIsNamedAndTheOthersAreRead(t *testing.T) {
	t.Parallel()
	good := `{"stream":"a","type":"T","body":1}` + "\n"
	const leftOut = `{"unreadable":{"position":7,"stream":"a","version":2,"type":"T","time":"2026-01-09T08:49:50Z","reason":"too long"}}` + "\n"
	path := filepath.Join(t.TempDir(), "all.ndjson")
	if err := os.WriteFile(path, []byte(good+leftOut+good), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range Open(path) {
		got = append(got, fmt.Sprint(r.Line, r.Stream, err))
	}
	want := []string{
		"1a<nil>", `2read ` + path +
			`: line 2: event 7 (T of stream "a", version 2) could not be read when the file was written: too long`,
		"3a<nil>",
	}
	for i := range want {
		if i >= len(got) || strings.ReplaceAll(got[i], " ", "") != strings.ReplaceAll(want[i], " ", "") {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
}

// Any event that can be appended can be read.
func TestLargestEventIsRead(t *testing.T) {
	t.Parallel()
	text, headers := strings.Repeat("x", valid.MaxPrinted-2), strings.Repeat("y", valid.MaxPrinted-len(`{"a": ""}`))
	line := `{"stream":"a","type":"T","body":"` + text + `","headers":{"a":"` + headers + `"}}`
	n := 0
	for r, err := range Read(strings.NewReader(line)) {
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Event.Body) != valid.MaxPrinted || len(r.Event.Headers["a"]) != len(headers) {
			t.Errorf("a body of %d bytes, a header of %d", len(r.Event.Body), len(r.Event.Headers["a"]))
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d events were read", n)
	}
}

func TestTruncatedFileIsAnError(t *testing.T) {
	t.Parallel()
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	z.Write([]byte(strings.Repeat(`{"stream":"a","type":"T","data":{}}`+"\n", 1000)))
	z.Close()
	var err error
	for _, err = range Read(bytes.NewReader(compressed.Bytes()[:compressed.Len()-10])) {
	}
	if err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("got %v, want an unexpected end", err)
	}
}

func TestExportedLineIsReadAsItWas(t *testing.T) {
	t.Parallel()
	const text = `{"position":7,"stream":"a","version":3,"type":"T","time":"2026-01-09T08:49:50Z","body":{"n":1},"headers":{"user":"u"},"causationId":"c","correlationId":"k"}`
	for r, err := range Read(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		e := r.Event
		if r.Stream != "a" || r.Line != 1 || e.Type != "T" || string(e.Body) != `{"n":1}` || e.Headers["user"] != "u" ||
			e.CausationID != "c" || e.CorrelationID != "k" ||
			!e.Time.Equal(time.Date(2026, time.January, 9, 8, 49, 50, 0, time.UTC)) {
			t.Errorf("%+v", r)
		}
	}
}

func TestRedactedEventIsReadAsOne(t *testing.T) {
	t.Parallel()
	lines := `{"stream":"a","type":"T","body":"redacted","headers":{ "redacted" : {"at":"2026-11-28T13:30:00Z"}}}
{"stream":"a","type":"T","body":1,"headers":{"redacted":"no"}}`
	var all []string
	for r, err := range Read(strings.NewReader(lines)) {
		if err != nil {
			t.Fatal(err)
		}
		headers, err := r.Event.RawHeaders()
		all = append(all, fmt.Sprintf("%s %s %v", r.Event.Body, headers, err))
	}
	want := `"redacted" {"redacted":{"at":"2026-11-28T13:30:00Z"}} <nil>, 1 {"redacted":"no"} <nil>`
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The zero time stands for the time of an append, so the earliest time that a store keeps must be another one.
func TestFirstTimeIsRead(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]bool{
		`,"time":"0001-01-01T00:00:00Z"`: true, `,"time":null`: false, "": false,
	} {
		for r, err := range Read(strings.NewReader(`{"stream":"a","type":"T"` + member + `}`)) {
			if err != nil {
				t.Fatal(err)
			}
			at := r.Event.Time
			if at.IsZero() == want || at.UnixMicro() != (time.Time{}).UnixMicro() {
				t.Errorf("%s: %v, which is the zero time: %v", member, at, at.IsZero())
			}
		}
	}
}

func TestPairsOfSurrogatesAreRead(t *testing.T) {
	t.Parallel()
	const line = `{"stream":"\ud83d\ude00","type":"\\ud800","headers":{"a":"\ud83d\ude00"},"note":"\ud800"}`
	for r, err := range Read(strings.NewReader(line)) {
		if err != nil || r.Stream != "😀" || r.Event.Type != `\ud800` || r.Event.Headers["a"] != "😀" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
