package aggregate

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

type opened struct{ Name string }

func (opened) EventType() string { return "Opened" }

type openedAgain struct{ Name string }

func (openedAgain) EventType() string { return "Opened" }

type unnamed struct{}

func (unnamed) EventType() string { return "" }

func folds[T event.Typed]() Fold[int] { return On(func(n int, _ event.Of[T]) int { return n + 1 }) }

func TestCategoryNamesWhatIsWrong(t *testing.T) {
	good := New("good", folds[opened]())
	for want, c := range map[string]*Category[int]{
		"the name of the category must not be empty":      New("", folds[opened]()),
		"must not contain a hyphen":                       New("a-b", folds[opened]()),
		"the category has no folds":                       New[int]("a"),
		"a fold is not made by On":                        New("a", Fold[int]{}),
		"the fold of aggregate.unnamed has no event type": New("a", folds[unnamed]()),
		`two folds have the event type "Opened": those of aggregate.opened and`: New("a", folds[opened](),
			folds[openedAgain]()),
		`the category ignores the event type "Opened", and has a fold for it`: good.Ignore("Opened"),
		"Snapshot must be every 1 or more events: 0":                          good.Snapshot(0, 1),
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := c.Load(t.Context(), nil, "1"); err == nil {
			t.Errorf("%s: it is loaded", want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"", "good-1", strings.Repeat("x", 500), "a\x00"} {
		if _, err := good.Load(t.Context(), nil, id); !errors.Is(err, ErrID) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	c := New("a", folds[opened]())
	decide := func(int) ([]event.Event, error) { return nil, nil }
	for want, o := range map[string]Option{"Retries must not be negative: -1": Retries(-1),
		"idempotency key": Key("")} {
		if _, err := c.Do(t.Context(), nil, "1", decide, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

type hidden struct {
	Kept int
	kept int
}

type left struct {
	Left int `json:"-"`
}

type holding[T any] struct{ Of map[string][]*T }

func TestStateThatJSONDoesNotKeepHasNoSnapshots(t *testing.T) {
	_ = hidden{}.kept
	for want, err := range map[string]error{
		"the field kept of aggregate.hidden":    validate[hidden](),
		"JSON has no keys of map[[2]string]int": validate[map[[2]string]int](),
		"the field Left of aggregate.left":      validate[holding[left]](),
		"a func()":                              validate[struct{ F func() }](),
		"a interface {}":                        validate[[]any](),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := errors.Join(validate[holding[time.Time]](), validate[struct{ Raw json.RawMessage }](),
		validate[map[int][2]float64]()); err != nil {
		t.Error(err)
	}
}

type money struct{ cents int64 }

func (m *money) MarshalJSON() ([]byte, error) { return json.Marshal(m.cents) }

func (m *money) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &m.cents) }

// What JSON loses of a value is found when it is saved.
func TestStateThatDoesNotDecodeToAnEqualValueIsNotSaved(t *testing.T) {
	for name, ok := range map[string]bool{
		"an empty map that is left out": encodes(struct {
			M map[string]int `json:"m,omitempty"`
		}{map[string]int{}}),
		"a number that JSON does not have": encodes(math.NaN()),
		"text that is not UTF-8":           encodes("\xff"),
		"a time of the process":            encodes(time.Now()),
		"a method that values do not have": encodes(struct{ M money }{money{42}}),
		"what is beside an embedded time": encodes(struct {
			time.Time
			Other int
		}{*at(7), 1}),
		"a state that is too large": encodes(strings.Repeat("x", maxSnapshot)),
	} {
		if ok {
			t.Errorf("%s: it is saved", name)
		}
	}
	if !encodes(holding[time.Time]{map[string][]*time.Time{"a": {at(7)}}}) || !encodes([]int(nil)) {
		t.Error("what JSON keeps is not saved")
	}
}

func at(seconds int64) *time.Time {
	at := time.Unix(seconds, 1000).UTC()
	return &at
}

func encodes[S any](state S) bool {
	_, ok := encode(state)
	return ok
}

func validate[S any]() error {
	return New("a", On(func(s S, _ event.Of[opened]) S { return s })).Snapshot(1, 1).Validate()
}

type release1 struct{ Cents int64 }

type release2 struct {
	Cents int64 `json:"cents"`
}

func TestFingerprintIsThatOfTheCode(t *testing.T) {
	var prints []string
	for _, fingerprint := range []string{
		New("a", folds[opened]()).Snapshot(1, 1).fingerprint,
		New("a", folds[opened]()).Snapshot(1, 2).fingerprint,
		New("b", folds[opened]()).Snapshot(1, 1).fingerprint,
		New("a", folds[openedAgain]()).Snapshot(1, 1).fingerprint,
		New("a", folds[opened]()).Ignore("Closed").Snapshot(1, 1).fingerprint,
		New("a", On(func(s release1, _ event.Of[opened]) release1 { return s })).Snapshot(1, 1).fingerprint,
		New("a", On(func(s release2, _ event.Of[opened]) release2 { return s })).Snapshot(1, 1).fingerprint,
	} {
		if slices.Contains(prints, fingerprint) || fingerprint == "" {
			t.Errorf("the fingerprint %q is that of other code", fingerprint)
		}
		prints = append(prints, fingerprint)
	}
	if New("a", folds[opened]()).Snapshot(5, 1).fingerprint != prints[0] {
		t.Error("the fingerprint depends on how often snapshots are saved")
	}
}

func TestSnapshotThatIsDamagedIsNotDecoded(t *testing.T) {
	good, ok := encode(release1{7})
	if !ok {
		t.Fatal("it is not encoded")
	}
	if s, ok := decode[release1](good); !ok || s.Cents != 7 {
		t.Errorf("%+v, %v", s, ok)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i]++
		if bad[i] == 'G' || bad[i] == '{'+1 {
			continue
		}
		if s, ok := decode[release1](bad); ok {
			t.Errorf("%s is decoded as %+v", bad, s)
		}
	}
	for _, bad := range []string{"", "0000000", "00000000", "not a sum"} {
		if _, ok := decode[release1]([]byte(bad)); ok {
			t.Errorf("%q is decoded", bad)
		}
	}
}
