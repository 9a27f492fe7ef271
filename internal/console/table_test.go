package console

import (
	"fmt"
	"strings"
	"testing"
)

func status(names ...string) Table {
	t := Table{Columns: []Column{{Title: "projection", Least: 10}, {Title: "state"}, {Title: "parked", Right: true},
		{Title: "owner", Optional: 1}, {Title: "epoch", Right: true, Optional: 2}}}
	for i, name := range names {
		t.Add(name, "missing object", fmt.Sprint(i*1000), "node-"+fmt.Sprint(i), "7")
	}
	return t
}

func TestTableFitsEveryWidth(t *testing.T) {
	t.Parallel()
	table := status("totals", strings.Repeat("very-long-name-", 6)+"end", "注文の合計の投影🙂🙂🙂")
	for width := 34; width < 200; width++ {
		for _, colours := range []bool{false, true} {
			for i, line := range table.Lines(width, colours) {
				plain := line
				for _, code := range codes {
					plain = strings.ReplaceAll(plain, code, "")
				}
				plain = strings.ReplaceAll(plain, plainCode, "")
				if Width(plain) > width {
					t.Fatalf("width %d: %q takes %d columns", width, plain, Width(plain))
				}
				if i > 0 && !strings.Contains(plain, "missing object") || i > 1 && !strings.Contains(plain, "000") {
					t.Fatalf("width %d: a column that is always shown is missing: %q", width, plain)
				}
			}
		}
	}
}

func TestColumnsAreLeftOutInTheirOrder(t *testing.T) {
	t.Parallel()
	table := status("totals")
	for width, want := range map[int]string{0: "epoch", 60: "epoch", 46: "owner", 40: "parked"} {
		titles := strings.Fields(table.Lines(width, false)[0])
		if got := titles[len(titles)-1]; got != want {
			t.Errorf("width %d: the last column is %s, want %s: %v", width, got, want, titles)
		}
	}
}

func TestColumnsOfWideCharactersAreAligned(t *testing.T) {
	t.Parallel()
	lines := status("totals", "注文の合計", "e\u0301te\u0301").Lines(60, false)
	at := Width(lines[0][:strings.Index(lines[0], "state")])
	for _, line := range lines[1:] {
		if got := Width(line[:strings.Index(line, "missing")]); got != at {
			t.Errorf("%q: the state begins at column %d, want %d", line, got, at)
		}
	}
}

func TestTextsAreCutInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"}, {"customer-orders", 9, "cust…ders"}, {"customer-orders", 1, "…"}, {"customer", 0, ""},
		{"注文の合計", 6, "注…計"}, {"注文の合計", 10, "注文の合計"},
	} {
		got := Fit(test.text, test.columns)
		if got != test.want || Width(got) > test.columns {
			t.Errorf("%q in %d: %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func TestControlCharactersOfNamesReachNoTerminal(t *testing.T) {
	t.Parallel()
	lines := status("evil\x1b[2Jname\r\n\u009b31m").Lines(80, false)
	if line := lines[1]; strings.ContainsAny(line, "\x1b\r\n\u009b") {
		t.Errorf("%q", line)
	}
}
