package sqlfile

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

var texts = Macros{"control": "c", "projection": "projection_id", "now": "now()", "in": "= any(%s)",
	"rows": "unnest(%s) as list(value)", "objects": "elements(%s) as list(value)", "tenant_id": "(select id of %s)",
	"tenant_name": "name", "living": "(%s lives or %s)", "lock": "",
	"object": "object(%s)", "array": "agg(%s)", "json": "json(%s)", "micros": "micros(%s)", "time": "time(%s)",
	"numbers": "numbers(%s)", "texts": "texts(%s)", "ids": "ids(%s)",
	"passed": "%s.passed", "passed_columns": "passed", "passed_values": "value", "stream_version": "version",
	"given_ids": ""}

func TestMacrosAreExpanded(t *testing.T) {
	for text, want := range map[string]string{
		"select $1":                                  "select $1",
		"{control}.leases":                           "c.leases",
		"d.{projection}":                             "d.projection_id",
		"a < {now} and b > {now}":                    "a < now() and b > now()",
		"a {in $1::text[]}":                          "a = any($1::text[])",
		"select list.value from {rows $1::text[]}":   "select list.value from unnest($1::text[]) as list(value)",
		"select list.value from {objects $1::jsonb}": "select list.value from elements($1::jsonb) as list(value)",
		"a = {tenant_id $1::text}":                   "a = (select id of $1::text)",
		"t.{tenant_name} = $1":                       "t.name = $1",
		"not {living l.owner}":                       "not (l.owner lives or l.owner)",
		"select 1 {lock for share of o}":             "select 1 ",
		"a {in (select h from {control}.o)} or b":    "a = any((select h from c.o)) or b",
		"select {object 'at', {micros a.at}}":        "select object('at', micros(a.at))",
		"{nothing}":                                  "error: there is no macro {nothing}",
		"{}":                                         "error: there is no macro {}",
		"{in {nothing}}":                             "error: there is no macro {nothing}",
		"{now} {nothing}":                            "error: there is no macro {nothing}",
		"{in}":                                       "error: the macro {in} needs an argument",
		"{now $1}":                                   "error: the macro {now} takes no argument: $1",
		"a {in (select {now}":                        "error: a brace is not closed: {in (select {now}",
	} {
		got, err := texts.Expand(text)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if _, err := (Macros{"now": "now()"}).Expand("select {projection}"); err == nil {
		t.Error("a macro without a text is not noticed")
	}
	for macro := range maps.Keys(macros) {
		if _, tested := texts[macro]; !tested {
			t.Errorf("the macro {%s} is not tested", macro)
		}
	}
}

func TestSharedStatementsAreThoseOfEachStore(t *testing.T) {
	own := Queries{"a": "select 1"}
	shared := func(name, text string) fstest.MapFS {
		return fstest.MapFS{"sql/" + name + ".sql": {Data: []byte("-- why\n" + text)}}
	}
	if got := own.Share(shared("b", "select {now}"), texts.Expand).Text("b"); got != "select now()" {
		t.Errorf("got %q", got)
	}
	for want, files := range map[string]fstest.MapFS{
		"statement a is shared, and in a folder of the store": shared("a", "select 2"),
		"statement c: there is no macro {nothing}":            shared("c", "select {nothing}"),
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			own.Share(files, texts.Expand)
		}()
	}
}
