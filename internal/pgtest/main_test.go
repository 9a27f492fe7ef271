package pgtest_test

import (
	"os"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

// TestMain is also the program that the tests in process_test.go kill.
func TestMain(m *testing.M) {
	if mode := os.Getenv(ownerMode); mode != "" {
		testmain.Run(owner(mode))
	}
	testmain.Run(m)
}
