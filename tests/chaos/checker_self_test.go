package chaos_test

import (
	"slices"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestCheckerNoticesEveryDefect(t *testing.T) {
	events := []stored{
		{1, "a", 1, typePlain, "k"}, {2, "b", 1, typeOdd, "l"}, {4, "a", 2, typeOdd, "m"}, {5, "b", 2, typePlain, "n"},
		{7, "a", 3, typePlain, "o"},
	}
	all := func() (applied []application) {
		for _, e := range events {
			applied = append(applied, application{e.Position, e.Stream, e.Version, "n1", e.Token})
		}
		return applied
	}
	swapped := func(i, j int) []application {
		a := all()
		a[i], a[j] = a[j], a[i]
		return a
	}
	ordered := func(indexes ...int) (applied []application) {
		for _, i := range indexes {
			applied = append(applied, all()[i])
		}
		return applied
	}
	odd := []application{{2, "b", 1, "n1", "l"}, {4, "a", 2, "n2", "m"}}
	for name, test := range map[string]struct {
		c    history
		want []string
	}{
		"exact":                     {history{applied: all()}, nil},
		"exact, of some types":      {history{types: []string{typeOdd}, applied: odd}, nil},
		"nothing happened":          {history{events: []stored{}}, nil},
		"one in the middle is lost": {history{applied: slices.Delete(all(), 2, 3)}, []string{kindLost}},
		"the last is lost":          {history{applied: all()[:4]}, []string{kindLost}},
		"everything is lost":        {history{}, []string{kindLost, kindLost, kindLost, kindLost, kindLost}},
		"one is doubled at once": {
			history{applied: slices.Insert(all(), 1, all()[0])}, []string{kindDoubled},
		},
		"one is doubled later":      {history{applied: append(all(), all()[1])}, []string{kindDoubled}},
		"two streams change places": {history{applied: swapped(2, 3)}, []string{kindOrder}},
		"a stream is out of order": {
			history{applied: swapped(2, 4)}, []string{kindOrder, kindOrder, kindStream},
		},
		"streams change places when split": {history{split: true, applied: swapped(2, 3)}, nil},
		"a stream is out of order, split":  {history{split: true, applied: swapped(2, 4)}, []string{kindStream}},
		"doubled when split": {
			history{split: true, applied: append(all(), all()[1])}, []string{kindDoubled},
		},
		"lost, and applied later": {
			history{applied: append(slices.Delete(all(), 0, 1), all()[0])}, []string{kindOrder, kindStream},
		},
		"a rolled-back one": {
			history{applied: slices.Insert(all(), 2, application{3, "c", 1, "n1", "p"})}, []string{kindForeign},
		},
		"another one than committed": {
			history{applied: append(all()[:4], application{7, "a", 4, "n1", "o"})}, []string{kindForeign},
		},
		"one whose place was reused": {
			history{applied: append(all()[:4], application{7, "a", 3, "n1", "q"})}, []string{kindForeign},
		},
		"one that is not selected": {
			history{types: []string{typeOdd}, applied: append([]application{{1, "a", 1, "n1", "k"}}, odd...)},
			[]string{kindUnasked},
		},
		"parked": {history{applied: all()[:4], parked: []int64{7}}, []string{kindParked}},
		"parked as expected": {
			history{applied: all()[:4], parked: []int64{7}, expected: []int64{7}}, nil,
		},
		"expected to be parked": {history{applied: all()[:4], expected: []int64{7}}, []string{kindUnparked}},
		"replayed at the end":   {history{applied: ordered(0, 2, 4, 1, 3), replayed: []int64{2, 5}}, nil},
		"replayed in a wrong order": {
			history{applied: ordered(0, 2, 4, 3, 1), replayed: []int64{2, 5}}, []string{kindStream},
		},
		"replayed after a later one": {
			history{applied: ordered(0, 2, 3, 4, 1), replayed: []int64{2}}, []string{kindStream},
		},
		"replayed twice": {
			history{applied: ordered(0, 2, 4, 1, 1, 3), replayed: []int64{2, 5}}, []string{kindDoubled},
		},
		"resolved and not applied": {
			history{applied: ordered(0, 2, 3, 4), replayed: []int64{2}}, []string{kindLost},
		},
		"not replayed and out of order": {
			history{applied: ordered(0, 3, 2, 4), discarded: []int64{2}}, []string{kindOrder},
		},
		"discarded":                    {history{applied: all()[:4], discarded: []int64{7}}, nil},
		"discarded and applied":        {history{applied: all(), discarded: []int64{7}}, []string{kindGivenUp}},
		"lost beside one that is fine": {history{types: []string{typeOdd}, applied: odd[1:]}, []string{kindLost}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.c.events == nil {
				test.c.events = events
			}
			test.c.of = projection.ID{Tenant: "acme", Name: "ledger"}
			var kinds []string
			for _, f := range check(test.c) {
				kinds = append(kinds, f.kind)
			}
			slices.Sort(kinds)
			if !slices.Equal(kinds, test.want) {
				t.Errorf("found %q, want %q", kinds, test.want)
			}
		})
	}
}
