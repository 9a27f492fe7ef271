package lint_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace-go/millrace"

// layer says what the packages of one place may import of this module. A pattern is a path below the module: "x" is
// that package alone, "x/..." it and all below it, "." the root.
type layer struct {
	place string
	of    []string
}

// stores is what every store may import.
var stores = []string{
	"internal/lifecycle",
	"internal/resplit",
	"internal/rename",
	"internal/versions",
	"internal/eventlog", "internal/follow", "internal/logging",
	"internal/migration",
	"internal/sqlfile",
	"internal/backoff",
	"internal/partition",
	"internal/usercode", "internal/usererror",
	"internal/upcast", "eventtype",
	"internal/within",
	"internal/queued",
	"internal/excerpt",
	"internal/valid",
	"internal/policy",
	"internal/store", "internal/control", "internal/streams",
	"internal/deadletters", "internal/delivery",
	"internal/engine/...", "internal/queued",
	"projection/...", "tenancy",
	"event/...",
}

// layers are the rules for imports, which run downwards only. A package whose place is not listed is refused, so that a
// new package needs a decision about its place. Within its place a package may import any other. Tests are exempt.
var layers = []layer{
	{"internal/excerpt", nil},
	{"internal/usererror", []string{"internal/excerpt"}},
	{"internal/valid", []string{"internal/excerpt"}},
	{"internal/partition", nil},
	{"internal/redact", nil},
	{"internal/fair", nil},
	{"internal/growstack", nil},
	{"internal/resplit", []string{"internal/partition"}},
	{"internal/migration", nil},
	{"internal/sqlfile", nil},
	{"internal/within", nil},
	{"internal/cause", nil},
	{
		"event/...", []string{"internal/cause", "internal/usererror",
			"internal/redact", "internal/excerpt", "internal/valid"},
	},
	{
		"projection/...", []string{"internal/within",
			"internal/usererror", "internal/excerpt", "internal/valid", "event/..."},
	},
	{"tenancy", nil},
	{"observe", []string{"projection/...", "tenancy", "event/..."}},
	{"internal/observing", []string{"internal/usererror", "observe"}},
	{"internal/backoff", []string{"projection/...", "tenancy", "event/..."}},
	{
		"internal/usercode", []string{"internal/usererror",
			"internal/growstack", "projection/...", "tenancy", "event/..."},
	},
	{"internal/upcast", []string{"internal/usercode", "internal/excerpt", "internal/valid", "event/..."}},
	{"eventtype", []string{"internal/upcast", "internal/usercode", "internal/excerpt", "internal/valid", "event/..."}},
	{"internal/queued", []string{"internal/excerpt", "projection/...", "tenancy", "event/..."}},
	{"internal/versions", []string{"internal/partition", "internal/excerpt", "projection/...", "tenancy", "event/..."}},
	{
		"internal/engine/...", []string{"internal/cause",
			"internal/upcast", "internal/queued", "internal/within", "internal/versions", "internal/partition",
			"internal/usercode", "internal/excerpt", "internal/valid", "projection/...", "tenancy", "event/..."},
	},
	{
		"internal/eventlog", []string{"internal/cause",
			"internal/upcast", "internal/engine/...", "internal/within", "internal/excerpt", "internal/valid",
			"event/..."},
	},
	{"internal/window", []string{"event/..."}},
	{
		"internal/follow", []string{"internal/window",
			"internal/eventlog", "internal/backoff", "internal/engine/...", "projection/...", "tenancy", "event/..."},
	},
	{"internal/transfer", nil},
	{"internal/policy", []string{"internal/engine/...", "projection/...", "event/..."}},
	{
		"internal/machine", []string{"observe", "internal/backoff", "internal/policy",
			"internal/partition", "internal/engine/...", "projection/...", "tenancy", "event/..."},
	},
	{"internal/store", []string{"internal/engine/...", "projection/...", "tenancy"}},
	{"internal/tuning", []string{"internal/store"}},
	{
		"internal/control", []string{"internal/transfer",
			"internal/store", "internal/partition", "internal/resplit", "internal/rename", "internal/versions",
			"internal/redact", "internal/excerpt", "internal/engine/...", "internal/valid", "projection/...", "tenancy",
			"event/..."},
	},
	{
		"internal/streams", []string{"internal/upcast",
			"internal/eventlog", "internal/control", "internal/store", "internal/engine/...", "event/..."},
	},
	{
		"aggregate", []string{"internal/cause", "internal/eventlog",
			"internal/usercode", "internal/streams", "internal/engine/...", "internal/excerpt", "internal/valid",
			"event/..."},
	},
	{
		"internal/deadletters", []string{"internal/control",
			"internal/store", "internal/backoff", "internal/excerpt", "internal/valid", "internal/engine/...",
			"projection/...", "tenancy", "event/..."},
	},
	{
		"internal/delivery", []string{"internal/usercode",
			"internal/policy", "internal/engine/...", "projection/...", "tenancy", "event/..."},
	},
	{
		"internal/lifecycle", []string{"internal/control",
			"internal/store", "internal/backoff", "internal/engine/...", "projection/...", "tenancy"},
	},
	{
		"internal/rename", []string{"internal/versions",
			"internal/excerpt", "internal/engine/...", "projection/...", "tenancy"},
	},
	{"internal/ownership", []string{"internal/engine/...", "projection/...", "tenancy", "event/..."}},
	{"internal/rounds", []string{"internal/engine/...", "projection/...", "tenancy", "event/..."}},
	{"messages/...", []string{"internal/engine/...", "projection/...", "tenancy", "event/..."}},
	{
		"actors/...", []string{"observe", "internal/window",
			"internal/store", "internal/control", "internal/observing", "internal/versions", "internal/backoff",
			"internal/fair", "internal/growstack", "internal/partition", "internal/usercode", "internal/usererror",
			"internal/machine", "internal/policy", "internal/ownership", "internal/rounds", "internal/engine/...",
			"messages/...", "projection/...", "tenancy", "event/..."},
	},
	{
		"supervisor/...", []string{"observe", "internal/observing",
			"actors/...", "internal/backoff", "internal/machine", "internal/engine/...", "messages/...",
			"projection/...",
			"tenancy", "event/..."},
	},
	{"pgstore/internal/settle", nil},
	{"pgstore/internal/pgerr", nil},
	{"pgstore/internal/sqltext", nil},
	{"pgstore/internal/session", []string{"internal/sqlfile", "pgstore/internal/sqltext", "pgstore/internal/wire"}},
	{"pgstore/internal/guard", []string{"internal/usererror", "pgstore/internal/pgerr"}},
	{"pgstore/internal/wire", []string{"internal/valid", "event/..."}},
	{"pgstore/...", stores},
	{"sqlitestore/internal/filelock", nil},
	{"sqlitestore/internal/ownerlock", []string{"sqlitestore/internal/filelock"}},
	{"sqlitestore/...", stores},
	{"internal/logging", []string{"internal/excerpt", "internal/usercode", "internal/usererror"}},
	{"internal/health", []string{"actors/...", "internal/engine/...", "internal/excerpt", "projection/...", "tenancy"}},
	{
		"internal/waiting", []string{"actors/...",
			"internal/backoff", "internal/control", "internal/store", "internal/engine/...", "projection/...",
			"tenancy"},
	},
	{
		"admin", []string{"event/...", "actors/...",
			"internal/tuning", "internal/health", "internal/waiting", "internal/control", "internal/store",
			"internal/usercode", "internal/versions", "internal/lifecycle", "internal/backoff", "internal/partition",
			"internal/excerpt", "internal/engine/...", "projection/...", "tenancy"},
	},
	{
		".", []string{"admin", "internal/tuning", "internal/logging",
			"internal/health", "internal/waiting", "internal/control", "internal/store", "internal/usercode", "observe",
			"internal/observing", "internal/backoff", "internal/partition", "internal/excerpt", "internal/valid",
			"supervisor/...", "actors/...", "internal/engine/...", "projection/...", "tenancy", "event/..."},
	},
	{
		"millracetest", []string{".", "admin", "aggregate",
			"internal/tuning", "pgstore", "sqlitestore", "projection/...", "tenancy", "event/...", "internal/pgtest"},
	},
	{"millraceotel", []string{".", "admin", "observe", "projection/...", "tenancy", "event/..."}},
	{"internal/pgtest/testmain", []string{"internal/pgtest"}},
	{"internal/pgtest", nil},
	{"internal/console", nil},
	{"internal/eventfile", []string{"internal/redact", "internal/excerpt", "internal/valid", "event/..."}},
	{"internal/report", []string{"admin", "internal/console", "projection/...", "tenancy"}},
	{"internal/program", []string{"pgstore/...", "internal/console", "internal/pgtest"}},
	{"commandline", []string{".", "admin", "pgstore",
		"sqlitestore", "projection/...", "tenancy", "event/...", "eventtype",
		"internal/console", "internal/eventfile", "internal/report", "internal/valid"}},
	{"cmd/...", []string{".", "commandline", "admin",
		"internal/partition", "internal/valid", "internal/engine/...", "supervisor/...", "actors/...", "messages/...",
		"pgstore/...", "sqlitestore/...", "projection/...", "tenancy", "event/...",
		"internal/console", "internal/eventfile", "internal/report", "internal/excerpt", "internal/pgtest",
		"internal/program"}},
	{"tests/summary", []string{"internal/excerpt"}},
	{
		"tests/kit", []string{".", "eventtype", "admin",
			"aggregate", "observe", "internal/tuning", "internal/control", "internal/store", "internal/engine/...",
			"internal/partition", "pgstore/...", "sqlitestore/...", "projection/...", "tenancy", "event/...",
			"internal/pgtest"},
	},
	{"tests/...", []string{".", "eventtype", "admin",
		"aggregate", "internal/tuning", "internal/backoff", "observe", "internal/control", "internal/store",
		"internal/versions", "internal/eventlog", "internal/partition", "internal/usercode", "internal/engine/...",
		"supervisor/...", "actors/...", "messages/...", "pgstore/...", "sqlitestore/...", "projection/...", "tenancy",
		"event/...",
		"internal/pgtest/..."}},
}

// guest is a module of others that only some places may import.
type guest struct {
	path    string
	by      []string
	inTests bool // all test files may import it, too
}

var guests = []guest{
	{"github.com/asynkron/protoactor-go", []string{"actors/...", "supervisor/...", "."}, false},
	{
		"github.com/jackc/pgx/v5", []string{"pgstore/...",
			"commandline", "cmd/...", "internal/pgtest/...", "internal/program", "millracetest", "tests/..."}, true,
	},
	{"modernc.org/sqlite", []string{"sqlitestore/..."}, false},
	{"go.opentelemetry.io/otel", []string{"millraceotel"}, false},
	{"go.opentelemetry.io/otel/sdk", nil, false},
	{"go.opentelemetry.io/otel/exporters", nil, false},
}

// unlinked is a module that a program does not link if it uses only this place of ours.
type unlinked struct{ place, path string }

// apart keep the driver of one store out of programs that use another.
var apart = []unlinked{
	{".", "github.com/jackc/pgx/v5"}, {".", "modernc.org/sqlite"}, {"admin", "github.com/jackc/pgx/v5"},
	{"admin", "modernc.org/sqlite"},
	{"pgstore", "modernc.org/sqlite"}, {"sqlitestore", "github.com/jackc/pgx/v5"},
}

// forEveryStore is the place of tests that know no store, so that they run on each.
const forEveryStore = "tests"

// testOnly reach no package that others could import, by whatever way. The testing package itself is among them: what
// imports it adds its flags to a program.
var (
	testOnly   = []string{"testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/stretchr/testify"}
	testPlaces = []string{"internal/pgtest/testmain", "millracetest", "tests/..."}
)

// listed is what "go list -json" says of a package.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// place returns where a package stands below the module, and false for those of others.
func place(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func within(place string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		below, tree := strings.CutSuffix(pattern, "/...")
		return place == below || tree && strings.HasPrefix(place, below+"/")
	})
}

func belongs(path, to string) bool { return path == to || strings.HasPrefix(path, to+"/") }

// violations returns the broken rules, one line for each.
func violations(packages []listed) []string {
	var broken []string
	for _, p := range packages {
		own, _ := place(p.ImportPath)
		tests := slices.Concat(p.TestImports, p.XTestImports)
		broken = append(broken, upward(own, p.Imports)...)
		for _, guest := range guests {
			imported := p.Imports
			if !guest.inTests {
				imported = slices.Concat(imported, tests)
			}
			for _, path := range imported {
				if belongs(path, guest.path) && !within(own, guest.by) {
					broken = append(broken, fmt.Sprintf("%s imports %s, which is for %v", own, path, guest.by))
				}
			}
		}
		for _, rule := range apart {
			indirect := func(path string) bool { return belongs(path, rule.path) && !slices.Contains(p.Imports, path) }
			if rule.place == own && slices.ContainsFunc(p.Deps, indirect) {
				broken = append(broken, fmt.Sprintf("%s links %s, which another store needs", own, rule.path))
			}
		}
		for _, path := range tests {
			target, _ := place(path)
			driver := belongs(path, "github.com/jackc/pgx/v5") || belongs(path, "modernc.org/sqlite")
			if own == forEveryStore && (driver ||
				within(target, []string{"pgstore/...", "sqlitestore/...", "internal/pgtest"})) {
				broken = append(broken, fmt.Sprintf("%s imports %s, which is one store's: its tests run on each",
					own, path))
			}
		}
		if within(own, testPlaces) {
			continue
		}
		for _, path := range slices.Concat(p.Imports, p.Deps) {
			if slices.ContainsFunc(testOnly,
				func(to string) bool { return path == to || to != "testing" && belongs(path, to) }) {
				broken = append(broken, fmt.Sprintf("%s depends on %s, which is for tests", own, path))
			}
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken)
}

func upward(own string, imports []string) []string {
	at := slices.IndexFunc(layers, func(l layer) bool { return within(own, []string{l.place}) })
	if at < 0 {
		return []string{own + " stands in no layer: add it to the table of layers"}
	}
	var broken []string
	for _, path := range imports {
		target, ours := place(path)
		if ours && !within(target, layers[at].of) && !within(target, []string{layers[at].place}) {
			broken = append(broken, fmt.Sprintf("%s imports %s, which is not below it", own, target))
		}
	}
	return broken
}

func TestImportsRunDownwards(t *testing.T) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read what go list says: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 5 {
		t.Fatalf("only %d packages were seen: %v", len(packages), packages)
	}
	for _, line := range violations(packages) {
		t.Error(line)
	}
}

func TestImportRulesCanBeBroken(t *testing.T) {
	const (
		actor = "github.com/asynkron/protoactor-go/actor"
		pgx   = "github.com/jackc/pgx/v5"
		pool  = "github.com/jackc/pgx/v5/pgxpool"
	)
	of := func(place string, imports ...string) listed {
		return listed{ImportPath: module + strings.TrimSuffix("/"+place, "/."), Imports: imports, Deps: imports}
	}
	tested := func(p listed, imports ...string) listed {
		p.XTestImports = imports
		return p
	}
	linking := func(place string, deps ...string) listed {
		p := of(place)
		p.Deps = deps
		return p
	}
	ours := func(place string) string { return module + "/" + place }

	for name, test := range map[string]struct {
		p    listed
		want string // a part of the violation; empty: none
	}{
		"event imports nothing of ours": {of("event", ours("projection")), "event imports projection"},
		"projection imports event":      {of("projection", ours("event")), ""},
		"projection below messages":     {of("projection", ours("messages")), "projection imports messages"},
		"messages below actors":         {of("messages", ours("actors")), "messages imports actors"},
		"actors know no store":          {of("actors", ours("pgstore")), "actors imports pgstore"},
		"actors below supervisor":       {of("actors", ours("supervisor")), "actors imports supervisor"},
		"a part of actors is of actors": {of("actors/lease", ours("actors/shell"), ours("event")), ""},
		"a part of actors below supervisor": {
			of("actors/lease", ours("supervisor")), "actors/lease imports supervisor",
		},
		"supervisor knows no store": {of("supervisor", ours("pgstore")), "supervisor imports pgstore"},
		"store knows no actors":     {of("pgstore", ours("messages")), "pgstore imports messages"},
		"nobody imports the root":   {of("supervisor", module), "supervisor imports ."},
		"admin needs no runtime":    {of("admin", module), "admin imports ."},
		"admin knows no supervisor": {of("admin", ours("supervisor")), "admin imports supervisor"},
		"the root imports all":      {of(".", ours("supervisor"), ours("event"), actor), ""},
		"the root knows no store":   {of(".", ours("pgstore")), ". imports pgstore"},
		"the root knows no driver":  {of(".", pgx), ". imports " + pgx},
		"the root brings no server": {of(".", ours("internal/pgtest")), ". imports internal/pgtest"},
		"nobody imports commands":   {of("pgstore", ours("cmd/demo")), "pgstore imports cmd/demo"},
		"the command line is no engine": {
			of("commandline", ours("internal/engine/...")), "commandline imports internal/engine",
		},
		"commands bring a server": {of("cmd/demo", module, ours("internal/pgtest"), pool), ""},
		"commands are not tests": {
			of("cmd/demo", ours("internal/pgtest/testmain")), "cmd/demo imports internal/pgtest/testmain",
		},
		"the server knows nothing of ours": {
			of("internal/pgtest", ours("pgstore")), "internal/pgtest imports pgstore",
		},
		"OpenTelemetry's API": {of("millraceotel", module, "go.opentelemetry.io/otel/metric"), ""},
		"not its SDK": {
			of("millraceotel", "go.opentelemetry.io/otel/sdk/metric"),
			"millraceotel imports go.opentelemetry.io/otel/sdk/metric",
		},
		"OpenTelemetry in no other place": {
			of(".", "go.opentelemetry.io/otel/trace"), ". imports go.opentelemetry.io/otel/trace",
		},
		"no package of ours needs it":      {of("actors", ours("millraceotel")), "actors imports millraceotel"},
		"a new place is decided upon":      {of("util"), "util stands in no layer"},
		"a name that only begins the same": {of("eventual"), "eventual stands in no layer"},
		"protoactor in actors":             {of("actors", actor), ""},
		"protoactor not in messages":       {of("messages", actor), "messages imports " + actor},
		"protoactor not in commands":       {of("cmd/demo", actor), "cmd/demo imports " + actor},
		"protoactor not in others' tests":  {tested(of("pgstore"), actor), "pgstore imports " + actor},
		"the other store's driver": {
			linking("pgstore", "modernc.org/sqlite/lib"), "pgstore links modernc.org/sqlite",
		},
		"the other store's driver, too":   {linking("sqlitestore", pool), "sqlitestore links " + pgx},
		"no store's driver in the root":   {linking(".", "modernc.org/sqlite"), ". links modernc.org/sqlite"},
		"each store its own driver":       {linking("pgstore", pool), ""},
		"pgx in the store":                {of("pgstore", pgx, pool), ""},
		"pgx not in actors":               {of("actors", pgx), "actors imports " + pgx},
		"pgx not in projection":           {of("projection", pool), "projection imports " + pool},
		"pgx in tests":                    {tested(of("actors"), pgx), ""},
		"pgx not in tests of every store": {tested(of("tests"), pgx), "tests imports " + pgx},
		"no store in tests of every store": {
			tested(of("tests"), ours("pgstore")), "tests imports " + ours("pgstore"),
		},
		"a store in tests of that store": {tested(of("tests/postgres"), ours("pgstore"), pgx), ""},
		"no runner of tests below the kit": {
			of("tests/kit", ours("internal/pgtest/testmain")), "tests/kit imports internal/pgtest/testmain",
		},
		"test-only modules in tests":    {tested(of("actors"), "go.uber.org/goleak", "pgregory.net/rapid"), ""},
		"test-only modules in testmain": {of("internal/pgtest/testmain", "go.uber.org/goleak"), ""},
		"goleak not in the server": {
			of("internal/pgtest", "go.uber.org/goleak"), "depends on go.uber.org/goleak",
		},
		"rapid not in actors": {of("actors", "pgregory.net/rapid"), "depends on pgregory.net/rapid"},
		"testify not in the store": {
			of("pgstore", "github.com/stretchr/testify/assert"), "depends on github.com/stretchr/testify",
		},
		"testing not in the server":          {of("internal/pgtest", "testing"), "depends on testing"},
		"other packages of testing are free": {of("internal/pgtest", "testing/fstest"), ""},
		"test-only modules behind others": {
			listed{ImportPath: ours("actors"), Deps: []string{"pgregory.net/rapid"}},
			"actors depends on pgregory.net/rapid"},
	} {
		t.Run(name, func(t *testing.T) {
			got := violations([]listed{test.p})
			switch {
			case test.want == "" && len(got) != 0:
				t.Errorf("refused: %v", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}
