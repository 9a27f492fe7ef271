package transfer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/transfer"
)

// row is a row with a body.
func row(body string) string {
	text, err := json.Marshal(map[string]any{"position": 1, "body": body})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// different returns the member in which two rows differ.
func different(t *testing.T, a, b string) string {
	t.Helper()
	member, err := transfer.Different(a, b)
	if err != nil {
		t.Fatalf("%s, %s: %v", a, b, err)
	}
	return member
}

func TestJSONIsComparedByItsValue(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":[true,null]}`, ` { "b" : [true, null], "a" : 1 } `, `{"a":2,"b":0,"b":[true,null],"a":1}`},
		{`1.10`, `1.1`, `11e-1`, `0.011E+2`, `110e-2`},
		{`0`, `-0`, `0.00`, `0e5`},
		{`100`, `1e2`, `1E+2`, `100.0`},
		{`-12.5`, `-125e-1`},
		{`1e400`, `1` + strings.Repeat("0", 400)},
		{`"é\/"`, `"\u00e9/"`},
		{`"😀"`, `"\ud83d\ude00"`},
	} {
		for _, text := range same[1:] {
			if different(t, row(same[0]), row(text)) != "" {
				t.Errorf("%s and %s are the same value", same[0], text)
			}
		}
	}
	values := []string{`null`, `0`, `1`, `-1`, `10`, `0.1`, `1.01`, `"1"`, `true`, `false`, `""`, `[]`, `{}`, `[[]]`,
		`[1,0]`, `[10]`, `["10"]`,
		`{"a":1}`, `{"a":"1"}`, `{"b":1}`, `{"a":1,"b":null}`, `["a",1]`, `"a"`, `"A"`, `"a "`}
	for i, a := range values {
		for _, b := range values[i+1:] {
			if different(t, row(a), row(b)) != "body" {
				t.Errorf("%s and %s are different values", a, b)
			}
		}
	}
}

func TestDifferentMemberIsNamed(t *testing.T) {
	for want, other := range map[string]string{"": `{"b":"x", "a" : 1.0, "c":null}`, "a": `{"a":"1","b":"x"}`,
		"b": `{"a":1,"c":null}`, "c": `{"a":1,"b":"x","c":0}`} {
		if got := different(t, `{"a":1,"b":"x","c":null}`, other); got != want {
			t.Errorf("%s: %q, want %q", other, got, want)
		}
	}
	for _, bad := range []string{`{`, row(`{`), row(`1 2`), row(`1e99999999999`)} {
		if member, err := transfer.Different(bad, row("0")); err == nil {
			t.Errorf("%s: %q", bad, member)
		}
	}
}

func TestTextsThatServersRefuseAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"a":                 "a",
		"a\xffb":            "a\uFFFDb",
		`a\u0000b\u0001`:    "a\uFFFDb" + `\u0001`,
		`\\u0000`:           `\\u0000`,
		`\\\u0000\"\u0000`:  `\\` + "\uFFFD" + `\"` + "\uFFFD",
		`a backslash \\, c`: `a backslash \\, c`,
	} {
		if got := transfer.Storable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestPagesHaveFewLargeRows(t *testing.T) {
	var page transfer.Page
	for !page.Add(row(`"` + strings.Repeat("x", 1<<20) + `"`)) {
	}
	if n := len(page.Rows); n > 10 || !json.Valid([]byte(page.JSON())) {
		t.Errorf("a page has %d rows of 1 MiB", n)
	}
}
