package runbook_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

// patient is a limit that only a hang exceeds.
const patient = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(nodePlace) != "" {
		if err := runNode(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Run(removing{m})
}

// removing removes the folder of the command line after the tests.
type removing struct{ tests interface{ Run() int } }

func (r removing) Run() int {
	code := r.tests.Run()
	if dir, err := commandLine(); err == nil {
		_ = os.RemoveAll(dir)
	}
	return code
}

// commandLine builds the command line once, and returns the folder in which it is.
var commandLine = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "millrace-runbook-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "millrace"), "../../cmd/millrace")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as other tests build
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", build, err, out)
	}
	return dir, nil
})
