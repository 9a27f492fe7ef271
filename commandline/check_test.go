package commandline

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
)

// checked runs check with --json. Its exit status must fit its findings.
func checked(t *testing.T, p place, args ...string) (found checkJSON) {
	t.Helper()
	out, errs, status := p.run(t, append([]string{"check", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v: %q, %q, status %d", err, out, errs, status)
	}
	if len(found.Findings) == 0 && status != done || len(found.Findings) > 0 && status != foundSomething {
		t.Errorf("status %d with %d findings", status, len(found.Findings))
	}
	return found
}

func TestCheckFindsProjectionsThatDoNotWork(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "acme")
		n := p.startNode(t)
		p.await(t, `acme/totals +1 +live`, "projections", "list", "--all-tenants")
		if found := checked(t, p); len(found.Findings) > 0 || len(found.Projections) > 0 {
			t.Errorf("on a sound store: %+v", found)
		}

		p.must(t, done, "events", "append", "order-1", retryAt+"mails", "--tenant", "acme")
		p.await(t,
			`(?s)^lag: projections with events that have waited for longer than 1ms: 1, the longest for \S+ in acme/mails\n.*\nacme/mails +\w+ +1 +0 +0 +[1-9]`,
			"check", "--max-lag", "1ms")
		if found := checked(t, p, "--max-lag", "1h"); len(found.Findings) > 0 {
			t.Errorf("with a high limit: %+v", found)
		}
		p.must(t, done, "projections", "pause", "mails", "--tenant", "acme")
		if found := checked(t, p, "--max-lag", "1ms"); len(found.Findings) > 0 {
			t.Errorf("a paused projection: %+v", found)
		}
		p.must(t, done, "projections", "resume", "mails", "--tenant", "acme")
		p.must(t, done, "events", "append", "order-1", stopAt+"totals")
		p.await(t,
			`(?s)projections: projections that have failed and wait until they are resumed: 1\n.*\ntotals +failed .*\ntotals, .*no such account`,
			"check", "--quiet", "--max-lag", "1h")

		p.must(t, done, "events", "append", "order-2", missAt+"totals", "--tenant", "acme")
		p.await(t,
			`(?s)projections: projections that wait for a missing object: 1\n.*\nacme/totals +missing object .*\nacme/totals, .*totals_missing`, "check", "--max-lag", "1h")

		// A version that readers do not use yet may be behind.
		n.end(syscall.SIGTERM)
		p.startNodeOf(t, "shop-2", "", "mails,mails@2")
		p.must(t, done, "events", "append", "order-1", retryAt+"mails@2", "--tenant", "acme")
		p.await(t, `acme/mails@2 +\w+ +1 +0 +0 +[1-9]`, "projections", "status", "--all-tenants")
		eventually(t, "only the version in use lags, and no node registers totals", func() bool {
			found := checked(t, p, "--max-lag", "1ms")
			if len(found.Projections) != 3 {
				return false
			}
			states := make(map[millrace.ProjectionID]admin.State)
			for _, p := range found.Projections {
				states[p.ID] = p.State
			}
			_, lags := states[full("acme", "mails")]
			return lags && states[full("default", "totals")] == admin.StateFailed &&
				states[full("acme", "totals")] == admin.StateUnregistered
		})
	})
}
