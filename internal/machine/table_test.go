package machine

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTransitionTable checks that the table in doc.go shows what the machine does in the scripts, and in random runs
// with fixed seeds.
func TestTransitionTable(t *testing.T) {
	if testing.Short() {
		t.Skip("many lives")
	}
	moves := map[string]map[string]map[string]bool{} // from, input, to
	seen := func(before State, in Input, after State) {
		from, by, to := name(before), name(in), name(after)
		if w, working := before.(Working); working {
			if same, still := after.(Working); still && same.Op == w.Op {
				return // the job goes on
			}
		} else if from == to {
			return
		}
		if moves[from] == nil {
			moves[from] = map[string]map[string]bool{}
		}
		if moves[from][by] == nil {
			moves[from][by] = map[string]bool{}
		}
		moves[from][by][to] = true
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script(t, string(text), seen)
	}
	for seed := range int64(150) {
		l := newLife(t, &dice{Rand: rand.New(rand.NewSource(seed))})
		l.seen = seen
		l.birth()
		for range 400 {
			l.one()
		}
		l.comeToRest()
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "// Working goes by the name of its job.\n//\n", "package machine"
	head, rest, _ := strings.Cut(string(doc), begin)
	_, tail, _ := strings.Cut(rest, end)
	want := head + begin + table(moves) + end + tail
	if *rewrite {
		if err := os.WriteFile("doc.go", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(doc) {
		t.Error("the table in doc.go is stale: go test ./internal/machine -rewrite renews it")
	}
}

// table draws the transitions: for each state, the inputs that leave it, and the states that they lead to.
func table(moves map[string]map[string]map[string]bool) string {
	var out strings.Builder
	for _, from := range slices.Sorted(maps.Keys(moves)) {
		by := map[string][]string{} // inputs by where they lead to
		for _, in := range slices.Sorted(maps.Keys(moves[from])) {
			to := strings.Join(slices.Sorted(maps.Keys(moves[from][in])), ", ")
			by[to] = append(by[to], in)
		}
		fmt.Fprintf(&out, "//\t%s\n", from)
		lines := make([]string, 0, len(by))
		for to, inputs := range by {
			lines = append(lines, wrapped(strings.Join(inputs, ", ")+": ", to))
		}
		slices.Sort(lines)
		out.WriteString(strings.Join(lines, ""))
	}
	return out.String()
}

// wrapped breaks a list of states into lines of at most 120 characters.
func wrapped(head, list string) string {
	var out strings.Builder
	line := head
	for i, word := range strings.SplitAfter(list, " ") {
		if i > 0 && len(line)+len(word) > 105 {
			fmt.Fprintf(&out, "//\t    %s\n", strings.TrimSpace(line))
			line = "        "
		}
		line += word
	}
	fmt.Fprintf(&out, "//\t    %s\n", strings.TrimRight(line, " "))
	return out.String()
}
