package lint_test

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

// logFaults returns the log messages of a file that are not constant and lower case, and the keys that are not single
// words.
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
		logs, at := slices.Contains(logLevels, selector.Sel.Name), 0
		if selector.Sel.Name == "log" && len(call.Args) > 1 { // of the state machine: the level comes first
			logs, at = true, 1
		}
		// of the state machine: an event and the level come first
		if selector.Sel.Name == "report" && len(call.Args) > 2 {
			logs, at = true, 2
		}
		text, literal := literalText(call.Args[at])
		switch {
		case from != nil && from.Name == "zap":
			if literal && !logKey.MatchString(text) {
				found = append(found, p.at(call)+": the key is not a single word: "+strconv.Quote(text))
			}
		case !logs:
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
		for _, fault := range logFaults(p) {
			t.Error(fault)
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
		`s.log(zap.InfoLevel, "read")`:                                 0,
		`s.log(zap.InfoLevel, "it reads; it writes")`:                  1,
		`s.report(e, zap.InfoLevel, "read")`:                           0,
		`s.report(e, zap.InfoLevel, "Read")`:                           1,
		`err.Error()`:                                                  0,
	} {
		p := parse(t, "x/a.go", "package x\nimport \"go.uber.org/zap\"\nfunc f() { "+call+" }\n")
		if found := logFaults(p); len(found) != faults {
			t.Errorf("%s: %q, want %d", call, found, faults)
		}
	}
}
