package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
)

func collect(t *testing.T, from source) []record {
	t.Helper()
	var all []record
	for r, err := range from {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestSameSeedMakesSameEvents(t *testing.T) {
	t.Parallel()
	first, again, other := collect(t, generate(3000, 7)), collect(t, generate(3000, 7)), collect(t, generate(3000, 8))
	if len(first) != 3000 {
		t.Errorf("made %d events, want 3000", len(first))
	}
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Error("the same seed made other events")
	}
	if fmt.Sprint(first) == fmt.Sprint(other) {
		t.Error("another seed made the same events")
	}
}

func TestClaimsFollowTheProcess(t *testing.T) {
	t.Parallel()
	amount := regexp.MustCompile(`^\d+\.\d\d$`)
	last := make(map[string]string)
	amounts := make(map[string]json.Number)
	seen := make(map[string]int)
	for _, r := range collect(t, generate(60_000, 1)) {
		if err := r.event.Validate(); err != nil {
			t.Fatal(err)
		}
		before, eventType := last[r.stream], r.event.Type
		if !allowed(before, eventType) {
			t.Fatalf("%s: %q follows %q", r.stream, eventType, before)
		}
		last[r.stream] = eventType
		seen[eventType]++
		var data claimData
		if err := json.Unmarshal(r.event.Body, &data); err != nil {
			t.Fatal(err)
		}
		if !amount.MatchString(data.Amount.String()) || data.Role == "" || data.Resource == "" || data.ID == "" ||
			data.Budget == "" {
			t.Fatalf("%s: data %s", r.stream, r.event.Body)
		}
		if known, ok := amounts[r.stream]; ok && known != data.Amount {
			t.Fatalf("%s: the amount changes from %s to %s", r.stream, known, data.Amount)
		}
		amounts[r.stream] = data.Amount
	}
	for _, steps := range paths {
		for _, s := range steps {
			if seen[s.next] == 0 {
				t.Errorf("there is no %q", s.next)
			}
		}
	}
	if seen[paid] < 60_000/10 {
		t.Errorf("only %d of 60000 events are payments", seen[paid])
	}
}

// allowed describes the process independently of the table from which generate chooses the events.
func allowed(before, eventType string) bool {
	switch eventType {
	case saved:
		return before == ""
	case submitted:
		return before == "" || before == withdrawn || before == lost
	case preApproved, preRejected, adminApproved, adminRejected:
		return before == submitted
	case budgetApproved, budgetRejected:
		return before == adminApproved
	case finalApproved, finalRejected:
		return before == submitted || before == preApproved || before == adminApproved || before == budgetApproved
	case withdrawn:
		return before == preRejected || before == adminRejected || before == budgetRejected || before == finalRejected
	case lost, requested:
		return before == finalApproved
	case paid:
		return before == requested
	}
	return false
}

func TestPercentagesAddUp(t *testing.T) {
	t.Parallel()
	for from, steps := range paths {
		sum := 0
		for _, s := range steps {
			sum += s.percent
		}
		if sum < 1 || sum > 100 {
			t.Errorf("after %q: %d percent", from, sum)
		}
	}
}
