package lint_test

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exportedOf returns the exported names of a package, with the methods and fields of its types as Type.Name.
func exportedOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	files, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, declared := range syntax(t, file).Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				names[functionName(d)] = d.Name.IsExported()
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					exportedBy(spec, names)
				}
			}
		}
	}
	return names
}

// exportedBy adds the names that a declaration exports.
func exportedBy(spec ast.Spec, names map[string]bool) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			names[name.Name] = name.IsExported()
		}
	case *ast.TypeSpec:
		names[s.Name.Name] = s.Name.IsExported()
		if of, ok := s.Type.(*ast.StructType); ok {
			for _, field := range of.Fields.List {
				for _, name := range field.Names {
					names[s.Name.Name+"."+name.Name] = name.IsExported() && s.Name.IsExported()
				}
			}
		}
	}
}

func TestWhatAFileCannotDoIsDocumented(t *testing.T) {
	_, section, found := strings.Cut(contentOf(t, "docs/sqlite.md"), "## What a file cannot do\n")
	section, _, _ = strings.Cut(section, "\n## ")
	file := exportedOf(t, "sqlitestore")
	missing := 0
	for name, exported := range exportedOf(t, "pgstore") {
		owner, member, inside := strings.Cut(name, ".")
		switch {
		case !exported || file[name]:
			continue
		case inside && !file[owner]: // its type is missing
			continue
		}
		missing++
		if !strings.Contains(section, "`"+name+"`") &&
			(!inside || !strings.Contains(section, "`"+member+"`")) {
			t.Errorf("docs/sqlite.md does not say that a file has no %s", name)
		}
	}
	if !found || missing < 10 {
		t.Errorf("%d names of pgstore are missing in sqlitestore", missing)
	}
	rows := strings.Split(section, "\n| ")
	has := make(map[string][]string)
	for _, kind := range kitKinds(t) {
		has[kind.name] = kind.has
	}
	texts := map[string]string{"SeveralNodes": "several nodes", "ConcurrentWrites": "concurrent writes"}
	for _, need := range has["pgstore"] {
		text := texts[need]
		row := slices.ContainsFunc(rows, func(row string) bool { return text != "" && strings.HasPrefix(row, text) })
		if !row && !slices.Contains(has["sqlitestore"], need) {
			t.Errorf("docs/sqlite.md has no row for the need %s of tests/kit", need)
		}
	}
	if len(has["pgstore"]) == 0 {
		t.Error("pgstore meets no need of tests/kit")
	}
}
