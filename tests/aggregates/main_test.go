package aggregates_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }
