package lint_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The driver of SQLite is generated for one version of modernc.org/libc, and its documentation says that no other may
// be used.
func TestLibcIsThatOfTheDriver(t *testing.T) {
	list := func(args ...string) string {
		cmd := exec.Command("go", append([]string{"list", "-m"}, args...)...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list -m %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	ours := list("-f", "{{.Version}}", "modernc.org/libc")
	raw, err := os.ReadFile(list("-f", "{{.GoMod}}", "modernc.org/sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := regexp.MustCompile(`(?m)^\s*modernc\.org/libc (\S+)$`).FindSubmatch(raw)
	if theirs == nil || string(theirs[1]) != ours {
		t.Errorf("this module has modernc.org/libc %s, the driver of SQLite needs %s", ours, theirs)
	}
}
