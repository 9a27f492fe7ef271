package commandline

import (
	"strings"
	"testing"
)

// A command that waits for a node shows that it waits.
func TestCommandThatWaitsShowsProgress(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "projections", "create", "totals")
		for _, line := range []string{"projections rebuild totals --yes", "dead-letters replay totals --all"} {
			out, errs, status := p.run(t, append(strings.Fields(line), "--timeout", "3s")...)
			if status != failed || out != "" || !strings.HasPrefix(errs, "0 of 1 projection\n") {
				t.Errorf("%s: status %d, printed %q and %q", line, status, out, errs)
			}
		}
	})
}
