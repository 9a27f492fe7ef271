package event

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type placed struct {
	Amount int `json:"amount"`
	Items  []struct {
		Price  int            `json:"price"`
		Tags   map[string]int `json:"tags"`
		Nested [][]int        `json:"nested"`
	} `json:"items"`
	At time.Time `json:"at"`
}

func (placed) EventType() string { return "placed" }

type broken struct{ C chan int }

func (broken) EventType() string { return "broken" }

func TestTypedEventIsNamedByItsBody(t *testing.T) {
	e := New(placed{Amount: 3})
	if err := e.Validate(); err != nil || e.Type != "placed" || !strings.Contains(string(e.Body), `"amount":3`) {
		t.Errorf("%+v, %v", e, err)
	}
	if err := New(broken{}).Validate(); err == nil ||
		!strings.Contains(err.Error(), `encode the body of event "broken"`) {
		t.Errorf("error %v", err)
	}
}

func TestTypedEventIsDecodedAndKeepsItsEnvelope(t *testing.T) {
	e := Envelope{
		Position: 7, Stream: "order-1", Version: 2, Type: "placed", Body: []byte(`{"amount":3,"unknown":{"a":[]}}`),
	}
	of, err := As[placed](e)
	if err != nil || of.Body.Amount != 3 || of.Position != 7 || string(of.Envelope.Body) != string(e.Body) {
		t.Errorf("%+v, %v", of, err)
	}
	e.Type = "paid"
	if _, err := As[placed](e); err == nil || !strings.Contains(err.Error(), `type is not "placed"`) {
		t.Errorf("an event of another type: %v", err)
	}
}

func TestDecodeErrorNamesPositionTypeAndPath(t *testing.T) {
	for body, path := range map[string]string{
		`{"amount":"3"}`:                        "amount",
		`{"amount":1.5}`:                        "amount",
		`{"amount":{}}`:                         "amount",
		`{"items":{}}`:                          "items",
		`{"items":[1]}`:                         "items[0]",
		`{"items":[{"price":1},{"price":"2"}]}`: "items[1].price",
		` { "amount": 1, "items" : [ {"tags": {"a":1, "b":"x"}} ] }`: "items[0].tags.b",
		`{"items":[{"nested":[[],[1,2],[3,true]]}]}`:                 "items[0].nested[2][1]",
		`{"other":[{"amount":""}],"amount":[]}`:                      "amount",
		`7`:                                                          "",
		`{"at":"noon"}`:                                              "",
	} {
		_, err := As[placed](Envelope{Position: 7, Stream: "order-1", Type: "placed", Body: []byte(body)})
		var failed *DecodeError
		if !errors.As(err, &failed) || failed.Path != path || failed.Position != 7 || failed.Type != "placed" {
			t.Errorf("%s: %#v, want path %q", body, err, path)
			continue
		}
		want := `decode event 7 (placed of stream "order-1") as event.placed`
		if path != "" {
			want += " at " + path
		}
		if !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("%s: %v", body, err)
		}
	}
}
