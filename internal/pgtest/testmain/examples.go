package testmain

import (
	"os"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// exampleDSN is the environment variable by which examples find a database. They import nothing of tests, so that they
// run as they stand in a program of a user.
const exampleDSN = "MILLRACE_DSN"

// RunWithExamples is Run for packages with examples. It makes a database for them, unless there is one already: that of
// the caller, or of the test process that started this one.
func RunWithExamples(m interface{ Run() int }) {
	Run(withExamples{m})
}

type withExamples struct{ tests interface{ Run() int } }

func (m withExamples) Run() int {
	if os.Getenv(exampleDSN) == "" {
		dsn, drop := pgtest.ExampleDatabase()
		defer drop()
		if err := os.Setenv(exampleDSN, dsn); err != nil {
			panic(err)
		}
	}
	return m.tests.Run()
}
