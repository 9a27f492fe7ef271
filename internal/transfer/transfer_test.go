package transfer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/transfer"
)

var values = transfer.Table{Name: "values", Keys: 1, Columns: []transfer.Column{{Name: "id", Kind: transfer.Integer}, {Name: "text", Kind: transfer.Text}, {Name: "json", Kind: transfer.JSON}}}

// checksum is that of rows of the table values.
func checksum(t *testing.T, rows ...transfer.Row) string {
	t.Helper()
	d := transfer.NewDigest()
	for _, row := range rows {
		if err := d.Add(values, row); err != nil {
			t.Fatal(err)
		}
	}
	return d.Checksum()
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
			if checksum(t, transfer.Row{int64(1), "", same[0]}) != checksum(t, transfer.Row{int64(1), "", text}) {
				t.Errorf("%s and %s are the same value", same[0], text)
			}
		}
	}
	different := []string{`null`, `0`, `1`, `-1`, `10`, `0.1`, `1.01`, `"1"`, `true`, `false`, `""`, `[]`, `{}`, `[[]]`, `[1,0]`, `[10]`, `["10"]`,
		`{"a":1}`, `{"a":"1"}`, `{"b":1}`, `{"a":1,"b":null}`, `["a",1]`, `"a"`, `"A"`, `"a "`}
	for i, a := range different {
		for _, b := range different[i+1:] {
			if checksum(t, transfer.Row{int64(1), "", a}) == checksum(t, transfer.Row{int64(1), "", b}) {
				t.Errorf("%s and %s are different values", a, b)
			}
		}
	}
}

func TestChecksumIsOverValuesAndTheirOrder(t *testing.T) {
	rows := []transfer.Row{{int64(1), "a", nil}, {int64(2), "b", nil}}
	sums := map[string]string{checksum(t, rows...): "the rows"}
	for what, changed := range map[string][]transfer.Row{
		"another order":     {rows[1], rows[0]},
		"a row less":        {rows[0]},
		"a row twice":       {rows[0], rows[1], rows[1]},
		"null for empty":    {{int64(1), nil, nil}, rows[1]},
		"empty for a":       {{int64(1), "", nil}, rows[1]},
		"another number":    {{int64(257), "a", nil}, rows[1]},
		"a moved character": {{int64(1), "ab", nil}, {int64(2), "", nil}},
	} {
		sum := checksum(t, changed...)
		if other, taken := sums[sum]; taken {
			t.Errorf("%s has the checksum of %s", what, other)
		}
		sums[sum] = what
	}
	if err := transfer.NewDigest().Add(values, transfer.Row{int64(1), "a", "{"}); err == nil || !strings.Contains(err.Error(), "column json") {
		t.Errorf("JSON that is not valid: %v", err)
	}
}

func TestDifferentColumnIsNamed(t *testing.T) {
	row := transfer.Row{int64(1), "a", `{"a":1}`}
	for want, other := range map[string]transfer.Row{
		"": {int64(1), "a", `{"a":1.0}`}, "id": {int64(2), "b", `{}`}, "text": {int64(1), nil, `{}`}, "json": {int64(1), "a", nil},
	} {
		if got, err := transfer.Different(values, row, other); err != nil || got != want {
			t.Errorf("%v: %q %v, want %q", other, got, err, want)
		}
	}
}

func TestKeysAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, table := range transfer.Tables {
			key := table.After()
			for i := range key {
				if table.Columns[i].Kind == transfer.Integer {
					key[i] = rapid.Int64Range(0, 1<<62).Draw(t, "number")
				} else {
					key[i] = rapid.String().Draw(t, "text")
				}
			}
			text, err := json.Marshal(key)
			if err != nil {
				t.Fatal(err)
			}
			again, err := table.ParseKey(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if reread, _ := json.Marshal(again); string(reread) != string(text) {
				t.Errorf("%s: %s became %s", table.Name, text, reread)
			}
		}
	})
	for _, text := range []string{"", "[]", "[1,2,3]", `["a"]`, `{}`} {
		if key, err := transfer.Events.ParseKey(text); err == nil {
			t.Errorf("%s is the key %v", text, key)
		}
	}
}

func TestTextsThatServersRefuseAreReplaced(t *testing.T) {
	var page transfer.Page
	page.Add(transfer.Row{int64(1), "a\x00b\xffc", nil})
	if got := page.Rows[0][1]; got != "a\uFFFDb\uFFFDc" {
		t.Errorf("%q", got)
	}
	for !page.Full() {
		page.Add(transfer.Row{int64(1), strings.Repeat("x", 1<<20), nil})
	}
	if n := len(page.Rows); n > 10 {
		t.Errorf("a page has %d rows of 1 MiB", n)
	}
}
