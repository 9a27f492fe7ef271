package eventtype_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/projection"
)

type (
	placed1 struct {
		Amount string `json:"amount"`
	}
	placed2 struct {
		Euros int `json:"euros"`
	}
	placed3 struct {
		Cents int `json:"cents"`
	}
	otherPlaced struct{}
	paidShipped struct {
		Cents int `json:"cents"`
	}
	paid struct {
		Cents int `json:"cents"`
	}
	shipped struct{}
	broken  struct{}
	badNew  struct{ C chan int }
	selfish struct{}
	paidBy  struct{ Name string }
)

func (selfish) EventType() string             { return "selfish" }
func (*selfish) UnmarshalJSON(b []byte) error { panic("on purpose") }
func (*paidBy) EventType() string             { return "paid-by" }

func (placed1) EventType() string     { return "placed" }
func (placed2) EventType() string     { return "placed.v2" }
func (placed3) EventType() string     { return "placed.v3" }
func (otherPlaced) EventType() string { return "placed" }
func (paidShipped) EventType() string { return "paid-shipped" }
func (paid) EventType() string        { return "paid" }
func (shipped) EventType() string     { return "shipped" }
func (*broken) EventType() string     { panic("on purpose") }
func (badNew) EventType() string      { return "placed.v2" }

func to2(old placed1) (placed2, error) {
	var euros int
	_, err := fmt.Sscan(old.Amount, &euros)
	return placed2{euros}, err
}

func to3(old placed2) (placed3, error) { return placed3{100 * old.Euros}, nil }

func split(old paidShipped) ([]event.Event, error) {
	return []event.Event{event.New(paid(old)), event.New(shipped{})}, nil
}

func same(body json.RawMessage) (json.RawMessage, error) { return body, nil }

type all = []eventtype.Declaration

func chain() all {
	return all{eventtype.Upcast(to2), eventtype.Upcast(to3), eventtype.Of[paid](), eventtype.Of[shipped](),
		eventtype.Split(split, "paid", "shipped"), eventtype.Renamed("order_paid", "paid")}
}

func TestRegistryNamesEverythingThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		of   all
		want []string // none: it is fine
	}{
		"nothing":                 {nil, nil},
		"a chain":                 {chain(), nil},
		"a chain, twice declared": {append(chain(), eventtype.Of[placed1](), eventtype.Of[placed3]()), nil},
		"a version is left out":   {all{eventtype.UpcastJSON("a", "a.v3", same), eventtype.Named("a.v3")}, nil},
		"a renamed first version": {all{eventtype.Renamed("a_placed", "a.v2"), eventtype.Named("a.v2")}, nil},
		"v in a name": {all{eventtype.Named("order.verified", "com.v2.order", "v2", "a.v10")},
			[]string{`leads to event type "a.v10"`}},
		"two Go types": {all{eventtype.Of[placed1](), eventtype.Of[otherPlaced]()},
			[]string{`event type "placed" has two Go types: eventtype_test.placed1 and eventtype_test.otherPlaced`}},
		"two upcasters": {append(chain(), eventtype.UpcastJSON("placed", "paid", same)),
			[]string{`event type "placed" has two upcasters: to "placed.v2", and to "paid"`}},
		"a cycle": {all{eventtype.Renamed("a", "b"), eventtype.Renamed("b", "c"), eventtype.Renamed("c", "a")},
			[]string{`the upcasters form a cycle: "a" -> "b" -> "c" -> "a"`}},
		"its own target": {all{eventtype.Renamed("a", "a")}, []string{`cycle: "a" -> "a"`}},
		"a cycle through a split": {all{
			eventtype.Split(split, "paid", "shipped"), eventtype.Named("paid"),
			eventtype.Renamed("shipped", "paid-shipped"),
		},
			[]string{`cycle: "paid-shipped" -> "shipped" -> "paid-shipped"`}},
		"no road from 1": {all{eventtype.Of[placed1](), eventtype.Of[placed3]()},
			[]string{`event type "placed" has no upcaster, although "placed.v3" is newer`}},
		"no road from 2": {all{eventtype.Upcast(to2), eventtype.Of[placed3]()},
			[]string{`event type "placed.v2" has no upcaster, although "placed.v3" is newer`}},
		"a road past the newest": {all{eventtype.Renamed("a", "b"), eventtype.Named("a.v2", "b")},
			[]string{`event type "a" does not lead to "a.v2", which is newer, but to "b"`}},
		"backwards": {all{eventtype.Renamed("a.v2", "a"), eventtype.Named("a")},
			[]string{`event type "a" has no upcaster, although "a.v2" is newer`}},
		"no earlier version": {all{eventtype.Of[placed3]()},
			[]string{`no upcaster leads to event type "placed.v3": one from an earlier version is missing`}},
		"one version, two names": {
			all{eventtype.Named("a", "a.v1")}, []string{`event types "a" and "a.v1" are the same version`},
		},
		"an unknown target": {all{
			eventtype.Renamed("a", "b"), eventtype.Split(split, "paid", "shipped"), eventtype.Of[paid](),
		},
			[]string{
				`of event type "a" leads to "b", which is not registered`,
				`of event type "paid-shipped" leads to "shipped", which is not`,
			}},
		"no targets": {
			all{eventtype.Split(split)}, []string{`the upcaster of event type "paid-shipped" has no targets`},
		},
		"a target twice": {all{eventtype.Split(split, "paid", "paid"), eventtype.Of[paid]()},
			[]string{`names its target "paid" twice`}},
		"an empty name": {all{eventtype.Named(""), eventtype.Renamed("a", "")},
			[]string{"an event type must not be empty", "empty target"}},
		"a name that is no text": {all{eventtype.Named("a\x00")}, []string{"event type"}},
		"an empty version": {all{eventtype.Named("a.v")},
			[]string{`event type "a.v": its version ".v" must be a suffix such as .v2`}},
		"no version at all": {all{
			eventtype.Named("a.v0", "b.v02", "c.v2a", "d.v-1", "e.v2.1", "f.V2", "g.v9999999999"),
		},
			[]string{`".v0"`, `".v02"`, `".v2a"`, `".v-1"`, `".v2.1"`, `".V2"`, `".v9999999999"`}},
		"a zero value that panics": {all{eventtype.Of[*broken]()},
			[]string{"find the event type of *eventtype_test.broken by its zero value", "on purpose"}},
		"functions that are missing": {all{eventtype.Upcast[placed1, placed2](nil),
			eventtype.UpcastJSON("b", "paid", nil), eventtype.Of[paid](),
			eventtype.Split[paidShipped](nil, "paid")},
			[]string{
				`Upcast for event type "placed" is nil`, `UpcastJSON for event type "b" is nil`,
				`Split for event type "paid-shipped" is nil`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			types, err := eventtype.New(c.of...)
			if (types == nil) != (err != nil) || (err != nil) != (len(c.want) > 0) {
				t.Fatalf("%v, error %v", types, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}

func registry(t *testing.T, of ...eventtype.Declaration) *eventtype.Types {
	t.Helper()
	types, err := eventtype.New(of...)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func stored(eventType, body string) event.Envelope {
	return event.Envelope{Position: 7, Stream: "order-1", Version: 3, Type: eventType, Body: []byte(body),
		RawHeaders: []byte(`{"user":"u"}`), CorrelationID: "c"}
}

func TestUpcastFollowsTheRoadAndKeepsTheRest(t *testing.T) {
	types := registry(t, append(chain(), eventtype.Renamed("old_placed", "placed"),
		eventtype.UpcastJSON("both", "paid-shipped", same))...)
	for eventType, c := range map[string]struct {
		body string
		want []string
	}{
		"placed":       {`{"amount":"3"}`, []string{`placed.v3 {"cents":300}`}},
		"old_placed":   {`{"amount":"3"}`, []string{`placed.v3 {"cents":300}`}},
		"placed.v2":    {`{"euros":4}`, []string{`placed.v3 {"cents":400}`}},
		"placed.v3":    {`{"cents": 5}`, []string{`placed.v3 {"cents": 5}`}},
		"order_paid":   {`{"x": 5}`, []string{`paid {"x": 5}`}},
		"paid-shipped": {`{"cents":5}`, []string{`paid {"cents":5}`, `shipped {}`}},
		"both":         {`{"cents":5}`, []string{`paid {"cents":5}`, `shipped {}`}},
		"unknown":      {`{}`, []string{`unknown {}`}},
	} {
		e := stored(eventType, c.body)
		current, err := types.Upcast(e)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, up := range current {
			got = append(got, up.Type+" "+string(up.Body))
			want := e
			want.Type, want.Body = up.Type, up.Body
			if len(c.want) > 1 {
				want.Part = i + 1
			}
			if !reflect.DeepEqual(up, want) {
				t.Errorf("%s: %+v, want %+v", eventType, up, want)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", eventType, got, c.want)
		}
		if !reflect.DeepEqual(e, stored(eventType, c.body)) {
			t.Errorf("%s: the stored event changed", eventType)
		}
	}
}

func TestRedactedEventsGetTheNamesOfTheCurrentTypes(t *testing.T) {
	types := registry(t, chain()...)
	for eventType, want := range map[string][]string{"placed": {"placed.v3"}, "paid-shipped": {"paid", "shipped"},
		"order_paid": {"paid"}} {
		e := stored(eventType, `"redacted"`)
		e.RawHeaders = []byte(`{"redacted":{"at":"2026-01-02T03:04:05Z"}}`)
		if !e.Redacted() {
			t.Fatal("the event is not redacted")
		}
		current, err := types.Upcast(e)
		var got []string
		for _, up := range current {
			got = append(got, up.Type)
			if !up.Redacted() {
				t.Errorf("%s: %+v", eventType, up)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", eventType, got, err, want)
		}
	}
}

func TestFailedUpcastersAreErrorsOfTheEvent(t *testing.T) {
	onPurpose := errors.New("on purpose")
	by := func(f func(placed1) (placed2, error)) eventtype.Declaration { return eventtype.Upcast(f) }
	byJSON := func(f func(json.RawMessage) (json.RawMessage, error)) eventtype.Declaration {
		return eventtype.UpcastJSON("placed", "placed.v2", f)
	}
	bySplit := func(made ...event.Event) eventtype.Declaration {
		return eventtype.Split(func(placed1) ([]event.Event, error) { return made, nil }, "placed.v2")
	}
	for name, c := range map[string]struct {
		by   eventtype.Declaration
		body string
		is   error
		want string
	}{
		"an error": {by(func(placed1) (placed2, error) { return placed2{}, onPurpose }), `{}`, onPurpose,
			`decode event 7 (placed of stream "order-1") as placed.v2: the upcaster failed at "placed": on purpose`},
		"a panic": {
			by(func(placed1) (placed2, error) { panic("on purpose") }), `{}`, projection.ErrHandlerPanic, "on purpose",
		},
		"another shape": {by(to2), `{"amount":3}`, nil,
			`at amount: the upcaster failed at "placed": as eventtype_test.placed1: json: cannot unmarshal`},
		"strict": {
			eventtype.Upcast(to2, event.Strict), `{"amount":"3","x":1}`, event.ErrUnknownField, "at x",
		},
		"no JSON": {
			eventtype.Upcast(func(placed1) (badNew, error) { return badNew{make(chan int)}, nil }), `{}`, nil,
			"encode the body",
		},
		"a broken body": {
			byJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage("{"), nil }), `{}`, nil,
			"not one valid JSON",
		},
		"an error of JSON": {
			byJSON(func(json.RawMessage) (json.RawMessage, error) { return nil, onPurpose }), `{}`, onPurpose,
			"on purpose",
		},
		"another type": {
			bySplit(event.New(paid{})), `{}`, nil, `it returned an event of type "paid", which is no target of it`,
		},
		"no event": {bySplit(), `{}`, nil, "it returned no event"},
	} {
		t.Run(name, func(t *testing.T) {
			current, err := registry(t, c.by, eventtype.Named("placed.v2")).Upcast(stored("placed", c.body))
			var failed *event.DecodeError
			if !errors.As(err, &failed) || failed.Position != 7 || failed.Stream != "order-1" ||
				failed.Type != "placed" || len(current) != 0 {
				t.Fatalf("%v, error %v", current, err)
			}
			if !errors.Is(err, eventtype.ErrUpcast) || c.is != nil && !errors.Is(err, c.is) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestStoredNamesTheTypesThatASelectionReads(t *testing.T) {
	types := registry(t, chain()...)
	for selected, want := range map[string]struct {
		stored string
		err    error
	}{
		"":                 {"", nil},
		"placed.v3":        {"placed placed.v2 placed.v3", nil},
		"shipped":          {"paid-shipped shipped", nil},
		"paid":             {"order_paid paid paid-shipped", nil},
		"paid shipped":     {"order_paid paid paid-shipped shipped", nil},
		"placed":           {"", eventtype.ErrOutdated},
		"shipped placed.4": {"", eventtype.ErrNotRegistered},
	} {
		stored, err := types.Stored(strings.Fields(selected)...)
		if got := strings.Join(stored, " "); got != want.stored || !errors.Is(err, want.err) {
			t.Errorf("%s: %q, %v, want %+v", selected, got, err, want)
		}
	}
	if stored, err := (*eventtype.Types)(nil).Stored("paid"); err != nil || !slices.Equal(stored, []string{"paid"}) {
		t.Errorf("without a registry: %q, %v", stored, err)
	}
}

// silent is written as null.
type silent struct{}

func (silent) EventType() string            { return "silent" }
func (silent) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func TestCheckRefusesWhatNoGoTypeOfTheRegistryAppends(t *testing.T) {
	types := registry(t, append(chain(), eventtype.Named("any"), eventtype.Of[selfish](), eventtype.Of[silent](),
		eventtype.Of[*paidBy]())...)
	for name, c := range map[string]struct {
		of   event.Event
		is   error
		want string // none: it is fine
	}{
		"current":            {event.New(placed3{5}), nil, ""},
		"old":                {event.New(placed1{"5"}), nil, ""},
		"no Go type":         {event.Untyped("any", []int{1}), nil, ""},
		"no Go type, a road": {event.Untyped("order_paid", nil), nil, ""},
		"no members":         {event.New(shipped{}), nil, ""},
		"a JSON text":        {event.New(silent{}), nil, ""},
		"a pointer":          {event.New(&paidBy{"Ada"}), nil, ""},
		"not registered": {
			event.Untyped("Placed", nil), eventtype.ErrNotRegistered, `event type "Placed" is not registered`,
		},
		"another shape": {
			event.Untyped("paid", json.RawMessage(`{"cents":"5"}`)), nil,
			`the body of an event of type paid as eventtype_test.paid at cents: json: `,
		},
		"a misspelt member": {
			event.Untyped("paid", json.RawMessage(`{"cent":5}`)), event.ErrUnknownField, "at cent: ",
		},
		"a missing member": {event.Untyped("paid", json.RawMessage(`{}`)), event.ErrMissingField, "at cents: "},
		"no body":          {event.Untyped("paid", nil), event.ErrMissingField, ""},
		"no members, no body": {
			event.Event{Type: "shipped"}, nil, `type shipped as eventtype_test.shipped: event.New writes an object, not null`,
		},
		"no members, null": {event.Untyped("shipped", json.RawMessage(" null\n")), nil, "an object, not null"},
		"a panic":          {event.Untyped("selfish", 1), projection.ErrHandlerPanic, "on purpose"},
	} {
		err := types.Check(c.of)
		var failed *event.DecodeError
		switch {
		case c.want == "" && c.is == nil:
			if err != nil {
				t.Errorf("%s: error %v", name, err)
			}
		case err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want %v, %q", name, err, c.is, c.want)
		case c.is != eventtype.ErrNotRegistered && c.is != projection.ErrHandlerPanic && !errors.As(err, &failed):
			t.Errorf("%s: error %v is no DecodeError", name, err)
		}
	}
	if err := (*eventtype.Types)(nil).Check(event.Untyped("paid", nil)); err != nil {
		t.Errorf("without a registry: %v", err)
	}
}

// A function that changes the bytes that it gets changes no event.
func TestUpcastersGetCopiesOfBodies(t *testing.T) {
	types := registry(t, eventtype.Named("b"), eventtype.UpcastJSON("a",
		"b", func(body json.RawMessage) (json.RawMessage, error) {
			body[1] = '9'
			return body, nil
		}))
	e := stored("a", `[1]`)
	current, err := types.Upcast(e)
	if err != nil || string(current[0].Body) != `[9]` || string(e.Body) != `[1]` {
		t.Errorf("%s of %s, %v", current[0].Body, e.Body, err)
	}
}
