package event

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

type address struct {
	Street string `json:"street"`
	No     *int   `json:"no"`
}

type base struct {
	Tenant string `json:"tenant"`
	By     string `json:"by"`
}

type Extra struct {
	Note string `json:"note"`
}

// shaped has each kind of field.
type shaped struct {
	base
	*Extra
	By      string             `json:"by"` // hides that of base
	ID      string             // without a tag
	Cents   int64              `json:"cents,string"`
	Later   int                `json:"later,omitzero"`
	Old     string             `json:"old,omitempty"`
	Ship    address            `json:"ship"`
	Bill    *address           `json:"bill"`
	Items   []address          `json:"items"`
	Rates   map[string]address `json:"rates"`
	Pair    [2]int             `json:"pair"`
	At      time.Time          `json:"at"`
	Raw     json.RawMessage    `json:"raw"`
	Any     any                `json:"any"`
	Secret  string             `json:"-"`
	private int
}

func (shaped) EventType() string { return "shaped" }

// Nested is a type that embeds and has itself.
type Nested struct {
	*Nested
	Name  string   `json:"name"`
	Inner []Nested `json:"inner"`
}

func (Nested) EventType() string { return "nested" }

// ambiguous has a member X at the same depth twice, which the decoder ignores, and Y, of which the named one is used.
type (
	left  struct{ X, Y int }
	right struct {
		X int
		Z int `json:"Y"`
	}
	ambiguous struct {
		left
		right
	}
)

func (ambiguous) EventType() string { return "ambiguous" }

// own decodes itself.
type own struct{ N int }

func (own) EventType() string { return "own" }

func (o *own) UnmarshalJSON(raw []byte) error { o.N = len(raw); return nil }

type empty struct{}

func (empty) EventType() string { return "empty" }

const whole = `{"tenant":"t","by":"b","ID":"1","cents":"7","ship":{"street":"s","no":null},"bill":null,"items":null,"rates":null,` +
	`"pair":[1,2],"at":"2026-01-02T03:04:05Z","raw":{"a":[1]},"any":{"b":{"c":1}}}`

func TestStrictTakesWhatNewWrites(t *testing.T) {
	n := 7
	for _, value := range []shaped{
		{},
		{Extra: &Extra{"n"}, Later: 1, Old: "o", Bill: &address{"b", &n}, Items: []address{{}, {"i", &n}},
			Rates: map[string]address{"x": {}},
			Raw:   json.RawMessage(`[{}]`), Any: []any{map[string]any{"a": nil}}, private: 1, Secret: "s"},
	} {
		if value.Raw == nil {
			value.Raw = json.RawMessage("null")
		}
		strictlyDecodes[shaped](t, string(New(value).Body))
	}
	strictlyDecodes[shaped](t, whole)
	strictlyDecodes[shaped](t, strings.Replace(whole, `"ID"`, `"id"`, 1))
	strictlyDecodes[shaped](t, strings.Replace(whole, `{"a":[1]}`, `1e999`, 1))
	strictlyDecodes[shaped](t, strings.Replace(whole, `"pair"`, `"old":null,"later":null,"note":"x","pair"`, 1))
	strictlyDecodes[Nested](t,
		` { "name" : "a", "inner" : [ {"name": "b", "inner": null}, {"name":"c","inner":[]} ] } `)
	strictlyDecodes[ambiguous](t, string(New(ambiguous{}).Body))
	strictlyDecodes[own](t, `{"whatever":1}`)
	strictlyDecodes[empty](t, `{}`)
	strictlyDecodes[empty](t, `null`)
}

func strictlyDecodes[T Typed](t *testing.T, body string) {
	t.Helper()
	var zero T
	if _, err := As[T](Envelope{Type: zero.EventType(), Body: []byte(body)}, Strict); err != nil {
		t.Errorf("%s: %v", body, err)
	}
}

func TestStrictNamesTheMemberThatDiffers(t *testing.T) {
	for _, c := range []struct {
		old, new, path string
		want           error
	}{
		{`"by":"b"`, `"by":"b","x":{"y":[1]}`, "x", ErrUnknownField},
		{`"cents"`, `"amount"`, "amount", ErrUnknownField}, // renamed
		{`"tenant":"t",`, ``, "tenant", ErrMissingField},
		{`"ID":"1",`, ``, "ID", ErrMissingField},
		{`"ID":"1"`, `"ID":null`, "ID", ErrMissingField},
		{`"pair":[1,2]`, `"pair":[1]`, "pair[1]", ErrMissingField},
		{`"pair":[1,2]`, `"pair":[1,2,3]`, "pair[2]", ErrUnknownField},
		{`"pair":[1,2]`, `"pair":[1,null]`, "pair[1]", ErrMissingField},
		{`"bill":null,`, ``, "bill", ErrMissingField},
		{`"bill":null`, `"bill":{"street":"b"}`, "bill.no", ErrMissingField},
		{`"ship":{"street":"s","no":null}`, `"ship":null`, "ship", ErrMissingField},
		{`"street":"s"`, `"road":"s"`, "ship.road", ErrUnknownField},
		{`"items":null`, `"items":[{"street":"a","no":1},{"street":"b","nr":2}]`, "items[1].nr", ErrUnknownField},
		{`"rates":null`, `"rates":{"de":{"street":null,"no":1}}`, "rates.de.street", ErrMissingField},
		{`"at":`, `"Secret":"s","at":`, "Secret", ErrUnknownField},
		{`"at":`, `"private":1,"at":`, "private", ErrUnknownField},
		{`"at":`, `"base":{},"at":`, "base", ErrUnknownField},
	} {
		body := strings.Replace(whole, c.old, c.new, 1)
		e := Envelope{Position: 7, Stream: "order-1", Type: "shaped", Body: []byte(body)}
		if _, err := As[shaped](e); err != nil {
			t.Errorf("%s does not decode at all: %v", body, err)
		}
		_, err := As[shaped](e, Strict)
		var failed *DecodeError
		if !errors.As(err, &failed) || !errors.Is(err, c.want) || failed.Path != c.path || failed.Position != 7 ||
			failed.Type != "shaped" {
			t.Errorf("%s: %v, want %v at %s", c.new, err, c.want, c.path)
		}
	}
	_, err := As[shaped](Envelope{Type: "shaped", Body: []byte("null")}, Strict)
	if !errors.Is(err, ErrMissingField) {
		t.Errorf("null for a struct: %v", err)
	}
	_, err = As[ambiguous](Envelope{Type: "ambiguous", Body: []byte(`{"X":1,"Y":1}`)}, Strict)
	if !errors.Is(err, ErrUnknownField) || !strings.Contains(err.Error(), "at X") {
		t.Errorf("an ambiguous member: %v", err)
	}
}

// What the decoder refuses by itself is its own error.
func TestStrictLeavesOtherErrorsToTheDecoder(t *testing.T) {
	_, err := As[shaped](Envelope{Type: "shaped", Body: []byte(strings.Replace(whole, `"7"`, `[]`, 1))}, Strict)
	var failed *DecodeError
	if !errors.As(err, &failed) || errors.Is(err, ErrUnknownField) || errors.Is(err, ErrMissingField) {
		t.Error(err)
	}
}

// The fields that Strict knows are those of encoding/json: what New writes is taken, and each member of it is needed.
func FuzzStrictAgreesWithTheDecoder(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"x":{"x":[{"y":null}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var refuses shaped
		decoder := json.NewDecoder(strings.NewReader(string(body)))
		decoder.DisallowUnknownFields()
		unknown := decoder.Decode(&refuses)
		_, err := As[shaped](Envelope{Type: "shaped", Body: body}, Strict)
		if json.Unmarshal(body, new(shaped)) == nil && unknown != nil && err == nil {
			t.Errorf("%s: taken, but %v", body, unknown)
		}
		if unknown == nil && errors.Is(err, ErrUnknownField) && !strings.Contains(err.Error(), "pair[2]") {
			t.Errorf("%s: %v, but the decoder knows it", body, err)
		}
	})
}

func TestDecodingThatIsNotStrictAllocatesAsBefore(t *testing.T) {
	e := Envelope{Type: "placed", Body: []byte(`{"amount":3}`)}
	plain := testing.AllocsPerRun(100, func() {
		var body placed
		_ = json.Unmarshal(e.Body, &body)
	})
	if n := testing.AllocsPerRun(100, func() { _, _ = As[placed](e) }); n > plain {
		t.Errorf("%v allocations, and %v of the decoder alone", n, plain)
	}
}

func BenchmarkAs(b *testing.B) {
	e := Envelope{Type: "shaped", Body: []byte(whole)}
	for name, options := range map[string][]DecodeOption{"plain": nil, "strict": {Strict}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := As[shaped](e, options...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
