package lint_test

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const picture = "docs/architecture.svg"

// named is the text of the elements of a picture that have a class.
func named(t *testing.T, content, class string) (texts []string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(content))
	inside := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%s: %v", picture, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = slices.ContainsFunc(token.Attr, func(a xml.Attr) bool {
				return a.Name.Local == "class" && slices.Contains(strings.Fields(a.Value), class)
			})
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); inside && text != "" {
				texts = append(texts, text)
			}
		case xml.EndElement:
			inside = false
		}
	}
}

func TestPictureNamesWhatExists(t *testing.T) {
	content := contentOf(t, picture)
	kinds := contentOf(t, "observe/events.go")
	actors := named(t, content, "actor")
	for _, actor := range actors {
		if !strings.Contains(kinds, `ActorKind = "`+actor+`"`) {
			t.Errorf("%s shows the actor %s, which does not exist", picture, actor)
		}
	}
	if all := strings.Count(kinds, `ActorKind = "`); len(slices.Compact(slices.Sorted(slices.Values(actors)))) != all {
		t.Errorf("%s shows the actors %v, and there are %d kinds", picture, actors, all)
	}
	migrations := contentOf(t, "pgstore/migrations/control/0001_control.sql") + contentOf(t,
		"pgstore/migrations/tenant/0001_events.sql")
	tables := named(t, content, "table")
	for _, table := range tables {
		if !strings.Contains(migrations, "}."+table+" (") {
			t.Errorf("%s shows the table %s, which no migration creates", picture, table)
		}
	}
	if len(tables) < 4 {
		t.Errorf("%s shows the tables %v", picture, tables)
	}
	for _, tool := range []string{"inkscape", "sodipodi", "data:", "<image", "adobe", "figma"} {
		if strings.Contains(strings.ToLower(content), tool) {
			t.Errorf("%s contains %q", picture, tool)
		}
	}
}
