package runbook_test

import (
	"slices"
	"testing"
)

// recovered are, by the anchor of an entry, commands that show that its symptom is gone, and what they print. They run
// after the blocks of the entry. The page says once how to see that.
var recovered = map[string]string{
	"a-drop-of-a-tenant-was-interrupted": `
$ millrace doctor
nothing is wrong
`,
	"a-failover-lost-commits": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  …
`,
	"a-node-died": `
$ millrace projections status
mails   live  0  0  0  -  -  shop-2  2  …
totals  live  0  0  0  -  -  shop-2  2  …
`,
	"a-process-does-not-end": `
$ millrace projections status
mails   live  0  0  0  -  -  shop-2  2  …
totals  live  0  0  0  -  -  shop-2  2  …
`,
	"a-projection-is-paused": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  2  2
`,
	"a-projection-stopped-at-an-event": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  3  …
`,
	"a-projection-stopped-because-nearly-all-events-failed": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  40  …
`,
	"a-projection-waits-for-a-lock": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  1  1
`,
	"a-projection-waits-for-a-missing-table": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  1  1
`,
	"a-projection-waits-for-an-outside-service": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  1  1
`,
	"a-rebuild-does-not-proceed": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  1  …
`,
	"a-release-was-rolled-back-after-a-rename": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  2  …
`,
	"a-release-was-rolled-back-after-a-swap": `
$ millrace projections status
totals@2  live  0  0  0  -  -  shop-2  2  …
`,
	"a-role-lacks-rights": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  1  …
`,
	"a-tenant-is-paused": `
$ millrace projections status totals --tenant acme
acme/totals  live  0  0  0  -  -  shop-1  1  …
`,
	"a-transaction-has-been-open-for-long": `
$ millrace doctor --patience 1s
nothing is wrong
`,
	"all-events-of-a-stream-are-parked": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  3  …
`,
	"an-event-cannot-be-read": `
$ millrace check
nothing is wrong
`,
	"an-event-ends-every-process": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  2  …
`,
	"appends-to-a-tenant-are-refused": `
$ millrace projections status --tenant acme
acme/totals  live  0  0  0  -  -  shop-1  2  …
`,
	"events-are-parked": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  3  …
`,
	"events-arrive-only-every-few-seconds": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  2  …
`,
	"many-events-fail-and-are-tried-again": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  1  1
`,
	"no-node-runs-a-projection": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-2  2  …
`,
	"one-projection-lags": `
$ millrace projections status totals
totals/1  live  0  0  0  -  -  shop-1  20  …
totals/2  live  0  0  0  -  -  shop-1  20  …
totals/3  live  0  0  0  -  -  shop-1  20  …
totals/4  live  0  0  0  -  -  shop-1  20  …
`,
	"one-tenant-is-far-behind": `
$ millrace projections status --all-tenants
acme/totals    live  0  0  0  -  -  shop-1  30  …
globex/totals  live  0  0  0  -  -  shop-1   2  …
`,
	"the-clocks-differ": `
$ millrace doctor
nothing is wrong
`,
	"the-connections-are-used-up": `
$ millrace doctor
nothing is wrong
`,
	"the-disk-of-a-file-is-full": `
$ millrace doctor --file shop.db
nothing is wrong
$ millrace projections status --file shop.db
mails   live  0  0  0  -  -  shop-1  1  …
totals  live  0  0  0  -  -  shop-1  1  …
`,
	"the-disk-of-the-server-is-full": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  1  …
`,
	"the-events-end-below-the-checkpoint": `
$ millrace projections status totals
totals  live  0  0  0  -  -  shop-1  2  …
$ millrace check
nothing is wrong
`,
	"the-events-of-a-tenant-cannot-be-read": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  1  1
`,
	"the-events-of-a-tenant-wait-for-a-prepared-transaction": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  3  1
`,
	"the-events-of-a-tenant-wait-for-a-transaction": `
$ millrace projections status
totals  live  0  0  0  -  -  shop-1  3  1
`,
	"the-leases-are-bloated": `
$ millrace doctor
nothing is wrong
`,
	"the-owner-of-a-file-is-frozen": `
$ millrace projections status --file shop.db
mails   live  0  0  0  -  -  shop-2  1  …
totals  live  0  0  0  -  -  shop-2  1  …
`,
	"the-schema-of-a-tenant-is-gone": `
$ millrace projections status --tenant acme
acme/totals  live  0  0  0  -  -  shop-1  1  …
`,
	"the-store-is-not-migrated": `
$ millrace doctor
nothing is wrong
`,
}

// recovers runs the commands of recovered.
func (s *scenario) recovers() {
	s.Helper()
	for _, c := range commandsOf(block{language: "console", text: recovered[s.entry.anchor]}) {
		s.command(c)
	}
}

func TestRecoveredNamesEntries(t *testing.T) {
	t.Parallel()
	entries := readEntries(t, pageFile)
	for anchor, text := range recovered {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.anchor == anchor }) {
			t.Errorf("there is no entry %q", anchor)
		}
		for _, c := range commandsOf(block{language: "console", text: text}) {
			if !observes(c.line) || len(c.shown) == 0 {
				t.Errorf("%s: %q shows nothing", anchor, c.line)
			}
		}
	}
}
