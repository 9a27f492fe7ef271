package sqlitestore

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/partition"
)

// passedText returns passed slots as insert_partition.sql writes them.
func passedText(passed []partition.Passed) string {
	list := make([][3]int64, len(passed))
	for i, p := range passed {
		list[i] = [3]int64{int64(p.From), int64(p.To), p.Position}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // numbers are always encoded
	}
	return string(text)
}

func TestPassedSlotsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []partition.Passed
		for from := int32(0); from < partition.Slots && rapid.Bool().Draw(t, "another"); {
			from = rapid.Int32Range(from, partition.Slots-1).Draw(t, "from")
			to := rapid.Int32Range(from+1, partition.Slots).Draw(t, "to")
			want = append(want, partition.Passed{Range: partition.Range{From: from, To: to},
				Position: rapid.Int64Range(0, lastPosition).Draw(t, "position")})
			from = to
		}
		if got, err := passedFrom(passedText(want)); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
	})
	for _, text := range []string{"", "{}", "[[1,2]]", "[[1,2,3,4]]", "[[2,2,3]]", "[[-1,2,3]]", "[[0,268435457,3]]",
		"[[0,1,1.5]]"} {
		if passed, err := passedFrom(text); err == nil || !strings.Contains(err.Error(), "passed slots") {
			t.Errorf("%q: %v, %v", text, passed, err)
		}
	}
}
