package main

import (
	"strings"
	"testing"
)

const lines = `{"Action":"run","Test":"TestA/pgstore"}
{"Action":"pass","Test":"TestA/pgstore"}
{"Action":"output","Test":"TestA/sqlitestore","Output":"    store.go:1: sqlitestore has no several nodes\n"}
{"Action":"output","Test":"TestA/sqlitestore","Output":"--- SKIP: TestA/sqlitestore\n"}
{"Action":"skip","Test":"TestA/sqlitestore"}
{"Action":"pass","Test":"TestB/3/pgstore/x"}
{"Action":"pass","Test":"TestB/3/sqlitestore/x"}
{"Action":"output","Test":"TestB/3/sqlitestore/y","Output":"    store.go:1: sqlitestore has no concurrent writes\n"}
{"Action":"skip","Test":"TestB/3/sqlitestore/y"}
{"Action":"pass","Test":"TestB"}
`

func TestTableShowsEachStore(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(strings.NewReader(lines), &out); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"| test | pgstore | sqlitestore |", "| --- | --- | --- |",
		"| TestA | passed | needs several nodes |",
		"| TestB | passed | passed, but for subtests that need concurrent writes |",
		"| 2 tests | 2 passed | 1 passed |"}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]string{
		"of a store": lines + `{"Action":"output","Test":"TestC/pgstore","Output":"it broke\n"}
{"Action":"fail","Test":"TestC/pgstore"}`,
		"of the package": `{"Action":"output","Output":"it broke\n"}
{"Action":"fail"}`,
	} {
		var out strings.Builder
		if err := run(strings.NewReader(input), &out); err == nil || !strings.Contains(err.Error(), "it broke") {
			t.Errorf("%s: %v", name, err)
		}
		if failed := strings.Contains(out.String(), "FAILED"); failed != (name == "of a store") {
			t.Errorf("%s: the table is\n%s", name, out.String())
		}
	}
	if err := run(strings.NewReader(""), new(strings.Builder)); err == nil {
		t.Error("a run without tests is no error")
	}
}
