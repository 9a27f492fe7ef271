package chaos_test

import (
	"slices"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestCheckerNoticesEveryDefect(t *testing.T) {
	events := []stored{{1, "a", 1, typePlain, "k"}, {2, "b", 1, typeOdd, "l"}, {4, "a", 2, typeOdd, "m"}, {5, "b", 2, typePlain, "n"}, {7, "a", 3, typePlain, "o"}}
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
		c    course
		want []string
	}{
		"exact":                         {course{applied: all()}, nil},
		"exact, of some types":          {course{types: []string{typeOdd}, applied: odd}, nil},
		"nothing happened":              {course{events: []stored{}}, nil},
		"one in the middle is lost":     {course{applied: slices.Delete(all(), 2, 3)}, []string{kindLost}},
		"the last is lost":              {course{applied: all()[:4]}, []string{kindLost}},
		"everything is lost":            {course{}, []string{kindLost, kindLost, kindLost, kindLost, kindLost}},
		"one is doubled at once":        {course{applied: slices.Insert(all(), 1, all()[0])}, []string{kindDoubled}},
		"one is doubled later":          {course{applied: append(all(), all()[1])}, []string{kindDoubled}},
		"two streams change places":     {course{applied: swapped(2, 3)}, []string{kindOrder}},
		"a stream is out of order":      {course{applied: swapped(2, 4)}, []string{kindOrder, kindOrder, kindStream}},
		"lost, and applied later":       {course{applied: append(slices.Delete(all(), 0, 1), all()[0])}, []string{kindOrder, kindStream}},
		"a rolled-back one":             {course{applied: slices.Insert(all(), 2, application{3, "c", 1, "n1", "p"})}, []string{kindForeign}},
		"another one than committed":    {course{applied: append(all()[:4], application{7, "a", 4, "n1", "o"})}, []string{kindForeign}},
		"one whose place was reused":    {course{applied: append(all()[:4], application{7, "a", 3, "n1", "q"})}, []string{kindForeign}},
		"one that it did not select":    {course{types: []string{typeOdd}, applied: append([]application{{1, "a", 1, "n1", "k"}}, odd...)}, []string{kindUnasked}},
		"parked":                        {course{applied: all()[:4], parked: []int64{7}}, []string{kindParked}},
		"parked as expected":            {course{applied: all()[:4], parked: []int64{7}, expected: []int64{7}}, nil},
		"expected to be parked":         {course{applied: all()[:4], expected: []int64{7}}, []string{kindUnparked}},
		"replayed at the end":           {course{applied: ordered(0, 2, 4, 1, 3), replayed: []int64{2, 5}}, nil},
		"replayed in a wrong order":     {course{applied: ordered(0, 2, 4, 3, 1), replayed: []int64{2, 5}}, []string{kindStream}},
		"replayed after a later one":    {course{applied: ordered(0, 2, 3, 4, 1), replayed: []int64{2}}, []string{kindStream}},
		"replayed twice":                {course{applied: ordered(0, 2, 4, 1, 1, 3), replayed: []int64{2, 5}}, []string{kindDoubled}},
		"resolved and not applied":      {course{applied: ordered(0, 2, 3, 4), replayed: []int64{2}}, []string{kindLost}},
		"not replayed and out of order": {course{applied: ordered(0, 3, 2, 4), discarded: []int64{2}}, []string{kindOrder}},
		"discarded":                     {course{applied: all()[:4], discarded: []int64{7}}, nil},
		"discarded and applied":         {course{applied: all(), discarded: []int64{7}}, []string{kindGivenUp}},
		"lost beside one that is fine":  {course{types: []string{typeOdd}, applied: odd[1:]}, []string{kindLost}},
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
			if slices.Sort(kinds); !slices.Equal(kinds, test.want) {
				t.Errorf("found %q, want %q", kinds, test.want)
			}
		})
	}
}
