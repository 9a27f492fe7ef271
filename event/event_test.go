package event

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestValidateNamesWhatCannotBeStored(t *testing.T) {
	body := func(b string) Event { return Event{Type: "T", Body: json.RawMessage(b)} }
	for name, c := range map[string]struct {
		event Event
		want  string // empty: it is fine
	}{
		"bare": {Event{Type: "T"}, ""},
		"full": {
			Event{Type: "Tü", Body: []byte(`{"a":[1]}`), Headers: map[string]string{"": ""}, CausationID: "c",
				CorrelationID: "d"}, "",
		},
		"scalar body":               {body(` "x" `), ""},
		"no type":                   {Event{}, "event type is empty"},
		"type not UTF-8":            {Event{Type: "\xff"}, "event type"},
		"type with NUL":             {Event{Type: "a\x00"}, "event type"},
		"causation not UTF-8":       {Event{Type: "T", CausationID: "\xc3"}, "causation id"},
		"correlation with NUL":      {Event{Type: "T", CorrelationID: "\x00"}, "correlation id"},
		"header name not UTF-8":     {Event{Type: "T", Headers: map[string]string{"\xff": ""}}, "header name"},
		"header with NUL":           {Event{Type: "T", Headers: map[string]string{"trace": "\x00"}}, "header trace"},
		"broken body":               {body(`{`), "not one valid JSON"},
		"two values":                {body(`{}{}`), "not one valid JSON"},
		"raw NUL":                   {body("\"\x00\""), "not one valid JSON"},
		"body not UTF-8":            {body("\"\xff\""), "not valid UTF-8"},
		"member not UTF-8":          {body("{\"\xc3\":1}"), "not valid UTF-8"},
		"escaped NUL":               {body(`"\u0000"`), `\u0000`},
		"escaped NUL in a member":   {body(`{"a\u0000":1}`), `\u0000`},
		"escaped NUL, later":        {body(`"\\\"\u0041\\\u0000"`), `\u0000`},
		"escaped backslash":         {body(`"\\u0000 \\\\u0000"`), ""},
		"text that looks like it":   {body(`"u0000"`), ""},
		"surrogate pair":            {body(`"\ud83d\ude00\uD83D\uDE00"`), ""},
		"high without low":          {body(`"\ud83d"`), "surrogate"},
		"high before text":          {body(`"\ud83dx"`), "surrogate"},
		"high before other escape":  {body(`"\ud83d\n"`), "surrogate"},
		"high before high":          {body(`"\ud83d\ud83d\ude00"`), "surrogate"},
		"low alone":                 {body(`"\ude00"`), "surrogate"},
		"low before high":           {body(`"\ude00\ud83d"`), "surrogate"},
		"replacement character":     {body(`"\ufffd"`), ""},
		"escape at the body's end":  {body(`"\n"`), ""},
		"escaped quote and a pair":  {body(`"\"\ud83d\ude00\""`), ""},
		"looks like a pair, is not": {body(`"\ud83d\\ude00"`), "surrogate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.event.Validate()
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// What is accepted must be valid and decode to text without NUL and without what JSON decoding puts in place of a lone
// surrogate.
func FuzzValidateBody(f *testing.F) {
	for _, seed := range []string{`{"a":"\u0000"}`, `"\\u0000"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\"", `[1,null]`,
		`"\\\u0000"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		err := Event{Type: "T", Body: body}.Validate()
		var decoded string
		if json.Unmarshal(body, &decoded) != nil {
			if !json.Valid(body) && err == nil {
				t.Errorf("%q is accepted", body)
			}
			return
		}
		// The decoder reports the content of a single string.
		given := strings.Count(string(body), "\uFFFD") + strings.Count(strings.ToLower(string(body)), `\ufffd`)
		replaced := strings.Count(decoded, "\uFFFD") > given
		bad := strings.Contains(decoded, "\x00") || !utf8.Valid(body) || replaced
		if bad && err == nil {
			t.Errorf("%q is accepted", body)
		}
		if !bad && err != nil && given == 0 {
			t.Errorf("%q is refused: %v", body, err)
		}
	})
}

func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	e := Event{Type: "T", Headers: map[string]string{"h": strings.Repeat("x", 32<<20)}}
	_, err := e.RawHeaders() // every append calls it
	if want := "headers has 33554441 bytes as PostgreSQL prints it, of at most 33554432"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestEnvelopeGivesItsParts(t *testing.T) {
	e := Envelope{Type: "T", Position: 7, Body: []byte(`{"a":1}`), RawHeaders: []byte(`{"h":"v"}`)}
	var body struct{ A int }
	if err := e.Decode(&body); err != nil || body.A != 1 {
		t.Errorf("body %+v, %v", body, err)
	}
	if h := e.Headers(); h["h"] != "v" || (Envelope{}).Headers() != nil {
		t.Errorf("headers %v", h)
	}
	var wrong []int
	if err := e.Decode(&wrong); err == nil || !strings.Contains(err.Error(), "decode event 7 (T of") {
		t.Errorf("error %v", err)
	}
	if e.Size() < len(e.Body)+len(e.RawHeaders) {
		t.Errorf("size %d", e.Size())
	}
}

func TestUntypedEncodesTheBody(t *testing.T) {
	e := Untyped("T", map[string]int{"a": 1})
	if err := e.Validate(); err != nil || e.Type != "T" || string(e.Body) != `{"a":1}` {
		t.Errorf("%+v, %v", e, err)
	}
	if raw := Untyped("T", json.RawMessage(`{ "a" : 1 }`)); string(raw.Body) != `{ "a" : 1 }` {
		t.Errorf("a raw body became %s", raw.Body)
	}
	if err := Untyped("T", func() {}).Validate(); err == nil || !strings.Contains(err.Error(), `"T"`) {
		t.Errorf("error %v", err)
	}
}
