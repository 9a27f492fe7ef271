package tests_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestMain(m *testing.M) {
	kit.ServeProbes()
	testmain.Run(m)
}
