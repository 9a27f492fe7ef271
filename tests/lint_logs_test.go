package tests_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

var (
	logLevels  = []string{"Debug", "Info", "Warn", "Error", "DPanic", "Panic", "Fatal"}
	logMessage = regexp.MustCompile(`^[a-z][a-z0-9 ,:'-]*[a-z0-9]$`)
	logKey     = regexp.MustCompile(`^[a-z]+$`)
)

// oldLogs are files whose messages and keys still break the rules.
var oldLogs = []string{"actors/breaker.go", "actors/desk.go", "actors/failure.go", "actors/faults.go", "actors/projection.go", "actors/step.go"}

// logFaults returns the log messages of a file that are not constant and lower case, and the keys that are not single words.
func logFaults(p parsed) (found []string) {
	if p.test() || !imports(p, "go.uber.org/zap") {
		return nil
	}
	ast.Inspect(p.File, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, _ := selector.X.(*ast.Ident)
		text, literal := literalText(call.Args[0])
		switch {
		case from != nil && from.Name == "zap":
			if literal && !logKey.MatchString(text) {
				found = append(found, p.at(call)+": the key is not a single word: "+strconv.Quote(text))
			}
		case !slices.Contains(logLevels, selector.Sel.Name):
		case !literal:
			found = append(found, p.at(call)+": the message is not constant")
		case !logMessage.MatchString(text):
			found = append(found, p.at(call)+": the message is not a lower-case phrase: "+strconv.Quote(text))
		}
		return true
	})
	return found
}

func literalText(e ast.Expr) (text string, ok bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

func imports(p parsed, path string) bool {
	return slices.ContainsFunc(p.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(path) })
}

func TestSourceLogsConstantMessagesAndSingleWords(t *testing.T) {
	for _, p := range goFiles(t) {
		found, old := logFaults(p), slices.Contains(oldLogs, p.name)
		if old && len(found) == 0 {
			t.Errorf("%s logs as it should: remove it from the list of exceptions", p.name)
		}
		for _, fault := range found {
			if !old {
				t.Error(fault)
			}
		}
	}
}

func TestLogRulesAreKept(t *testing.T) {
	for call, faults := range map[string]int{
		`l.Info("events read", zap.Int("count", 3))`: 0,
		`l.Info(message)`:                    1,
		`l.Warn("read " + name)`:             1,
		`l.Warn("Read")`:                     1,
		`l.Debug("read; it is tried again")`: 1,
		`l.With(zap.String("up to", "x")).Error("read", zap.Error(e))`: 1,
		`l.Error(err.Error(), zap.Int("atMost", 3))`:                   2,
		`err.Error()`: 0,
	} {
		p := parse(t, "x/a.go", "package x\nimport \"go.uber.org/zap\"\nfunc f() { "+call+" }\n")
		if found := logFaults(p); len(found) != faults {
			t.Errorf("%s: %q, want %d", call, found, faults)
		}
	}
}
