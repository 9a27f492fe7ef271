package eventtype_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) { testmain.RunWithExamples(m) }
