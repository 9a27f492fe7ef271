package pgtest

import "log"

// ExampleDatabase is Database for an example, which has no TB. drop drops the database. It panics where Database fails
// a test.
func ExampleDatabase() (dsn string, drop func()) {
	tb := &exampleTB{}
	return Database(tb), tb.cleanUp
}

type exampleTB struct{ cleanups []func() }

func (*exampleTB) Helper()                        {}
func (*exampleTB) Name() string                   { return "Example" }
func (tb *exampleTB) Cleanup(fn func())           { tb.cleanups = append(tb.cleanups, fn) }
func (*exampleTB) Logf(string, ...any)            {}
func (*exampleTB) Skipf(format string, a ...any)  { log.Panicf(format, a...) }
func (*exampleTB) Fatalf(format string, a ...any) { log.Panicf(format, a...) }

func (tb *exampleTB) cleanUp() {
	for _, fn := range tb.cleanups {
		fn()
	}
}
