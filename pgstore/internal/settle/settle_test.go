package settle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settlingScenarios have a step on each line, and after the arrow the state of the settler. A read has everything that
// is visible beyond the mark, and "part" is a read that met its bounds. +n is settled with this step. A scan after
// which a read may find more has "new".
var settlingScenarios = map[string]string{
	"without a gap nothing is scanned": `
		start 0 0   -> mark 0
		read 1 2 3  -> +1 +2 +3 mark 3
		read        -> mark 3
		read 4      -> +4 mark 4`,
	"a gap that closes by itself": `
		start 3 3   -> mark 3
		read 5      -> mark 3 below 5
		read 4 5 6  -> +4 +5 +6 mark 6`,
	"a gap that closes only in part": `
		start 0 0   -> mark 0
		read 3 6    -> mark 0 below 6
		scan a b    -> new mark 0 below 6 for a b
		read 1 3 6  -> +1 mark 1 below 6 for a b
		scan b      -> new mark 1 below 6 for b
		read 2 3 6  -> +2 +3 mark 3 below 6 for b
		scan        -> new mark 3 below 6 cleared
		read 5 6    -> +5 +6 mark 6`,
	"a rolled back position is passed over": `
		start 3 3   -> mark 3
		read 5      -> mark 3 below 5
		scan        -> new mark 3 below 5 cleared
		read 5      -> +5 mark 5`,
	"the read that decides finds what was committed meanwhile": `
		start 3 3   -> mark 3
		read 6      -> mark 3 below 6
		scan a      -> new mark 3 below 6 for a
		scan        -> new mark 3 below 6 cleared
		read 4 5 6  -> +4 +5 +6 mark 6`,
	"a holder that came after the target is not waited for": `
		start 0 0   -> mark 0
		read 2      -> mark 0 below 2
		scan a      -> new mark 0 below 2 for a
		scan a b c  -> mark 0 below 2 for a
		scan b c    -> new mark 0 below 2 cleared
		read 2      -> +2 mark 2`,
	"a holder that left and came again is a new one": `
		start 0 0   -> mark 0
		read 3      -> mark 0 below 3
		scan a b    -> new mark 0 below 3 for a b
		scan b      -> new mark 0 below 3 for b
		scan a b    -> mark 0 below 3 for b
		scan a      -> new mark 0 below 3 cleared
		read 3      -> +3 mark 3`,
	"after the target a gap begins anew": `
		start 0 0   -> mark 0
		read 2      -> mark 0 below 2
		scan        -> new mark 0 below 2 cleared
		read 2 3 5  -> +2 +3 mark 3 below 5
		scan a      -> new mark 3 below 5 for a
		scan        -> new mark 3 below 5 cleared
		read 5      -> +5 mark 5`,
	"positions beyond the target stay out until it is settled": `
		start 0 0   -> mark 0
		read 2      -> mark 0 below 2
		scan a      -> new mark 0 below 2 for a
		read 2 3 4  -> mark 0 below 2 for a
		scan        -> new mark 0 below 2 cleared
		read 2 3 4  -> +2 +3 +4 mark 4`,
	"a gap longer than a read": `
		start 0 0   -> mark 0
		read 9      -> mark 0 below 9
		scan        -> new mark 0 below 9 cleared
		part 2 4    -> +2 +4 mark 4 below 9 cleared
		part 5 6    -> +5 +6 mark 6 below 9 cleared
		read 7      -> +7 mark 9`,
	"a read that met its bounds beyond the target": `
		start 0 0   -> mark 0
		read 2      -> mark 0 below 2
		scan        -> new mark 0 below 2 cleared
		part 4 5    -> mark 2 below 5
		scan        -> new mark 2 below 5 cleared
		read 4 5    -> +4 +5 mark 5`,
	"rows below the target that were deleted": `
		start 0 0   -> mark 0
		read 2 3    -> mark 0 below 3
		scan        -> new mark 0 below 3 cleared
		read        -> mark 3`,
	"the start is at the highest position without an append": `
		start 7 90  -> mark 7 below 90
		scan        -> new mark 90
		read 91     -> +91 mark 91`,
	"the start waits for an append": `
		start 7 9   -> mark 7 below 9
		scan a      -> new mark 7 below 9 for a
		read 9 11   -> mark 7 below 9 for a
		scan        -> new mark 9
		read 11     -> mark 9 below 11`,
	"a prepared transaction that a restart renames": `
		start 0 0   -> mark 0
		read 2      -> mark 0 below 2
		scan 3/7    -> new mark 0 below 2 for 3/7
		scan -1/740 -> mark 0 below 2 for -1/740
		scan -1/740 -> mark 0 below 2 for -1/740
		scan        -> new mark 0 below 2 cleared
		read 1 2    -> +1 +2 mark 2`,
	"a restored one joins once": `
		start 0 0          -> mark 0
		read 2             -> mark 0 below 2
		scan 3/7           -> new mark 0 below 2 for 3/7
		scan 3/7 -1/740    -> new mark 0 below 2 for -1/740 3/7
		scan 3/7           -> new mark 0 below 2 for 3/7
		scan 3/7 -1/740    -> mark 0 below 2 for 3/7
		scan -1/740 -1/741 -> mark 0 below 2 for -1/741
		scan -1/740        -> new mark 0 below 2 cleared`,
	"a new name after a restart may be an old one": `
		start 0 0          -> mark 0
		read 2             -> mark 0 below 2
		scan 3/7           -> new mark 0 below 2 for 3/7
		scan 3/7 -1/740    -> new mark 0 below 2 for -1/740 3/7
		scan -1/740        -> new mark 0 below 2 for -1/740
		scan               -> new mark 0 below 2 cleared`,
	"without a gap a scan changes nothing": `
		start 4 4   -> mark 4
		scan a      -> mark 4
		read 5      -> +5 mark 5`,
}

func TestSettlingScenarios(t *testing.T) {
	for name, script := range settlingScenarios {
		t.Run(name, func(t *testing.T) {
			var s Settler
			for line := range strings.Lines(script) {
				step, want, found := strings.Cut(strings.TrimSpace(line), "->")
				if !found {
					continue
				}
				if got := settlingStep(t, &s, strings.Fields(step)); got != strings.TrimSpace(want) {
					t.Fatalf("%s: got %q, want %q", strings.TrimSpace(step), got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// settlingStep does the step of a line and returns the state of the settler.
func settlingStep(t *testing.T, s *Settler, step []string) string {
	var got []string
	switch verb, args := step[0], step[1:]; verb {
	case "start":
		n := parsed(t, args)
		*s = New(n[0], n[1], time.Time{})
	case "read", "part":
		n := parsed(t, args)
		for _, p := range n[:s.Read(n, verb == "read", time.Time{})] {
			got = append(got, fmt.Sprintf("+%d", p))
		}
	case "scan":
		holders := []Holder{}
		for _, name := range args {
			holders = append(holders, Holder{Transaction: name})
		}
		scanned := s.Waiting()
		if s.Scan(holders) {
			got = append(got, "new")
		}
		if waits := s.Waiting(); s.Scanned() != (scanned && waits) {
			t.Errorf("scanned is %v after a scan", s.Scanned())
		}
	default:
		t.Fatalf("unknown step %q", verb)
	}
	got = append(got, fmt.Sprintf("mark %d", s.mark))
	if s.Waiting() {
		got = append(got, fmt.Sprintf("below %d", s.target))
	}
	if len(s.holders) > 0 {
		var names []string
		for h := range s.holders {
			names = append(names, h)
		}
		slices.Sort(names)
		got = append(got, "for "+strings.Join(names, " "))
	}
	if s.cleared {
		got = append(got, "cleared")
	}
	return strings.Join(got, " ")
}

func parsed(t *testing.T, words []string) []int64 {
	var list []int64
	for _, w := range words {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func TestGapIsScannedAfterItsGracePeriodAndThenLessOften(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	s := New(0, 0, start)
	s.Read([]int64{3}, true, start)
	if s.ScanDue(start.Add(grace - 1)) {
		t.Error("a scan is due at once")
	}
	if wait := s.Wait(start); wait != grace {
		t.Errorf("the first wait is %v, want %v", wait, grace)
	}
	if wait := s.Wait(start.Add(grace - 2*time.Millisecond)); wait != 2*time.Millisecond || s.Scanned() {
		t.Errorf("then it is %v, scanned is %v", wait, s.Scanned())
	}
	if !s.ScanDue(start.Add(grace)) {
		t.Error("no scan is due after the grace")
	}
	for last := grace; last < maxWait; {
		s.Scan([]Holder{{Transaction: "3/7", PID: 12}, {Transaction: "-1/740"}})
		wait := s.Wait(start.Add(time.Minute))
		if s.ScanDue(start.Add(time.Minute)) || wait <= last || wait > maxWait {
			t.Fatalf("%v after %v", wait, last)
		}
		last = wait
	}
	below, since, holders := s.Held()
	if want := []string{"backend 12", "prepared transaction -1/740"}; below != 3 || !since.Equal(start) ||
		!slices.Equal(holders, want) {
		t.Errorf("held below %d since %v by %q", below, since, holders)
	}
}
