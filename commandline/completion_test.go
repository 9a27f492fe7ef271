package commandline

import (
	"strings"
	"testing"
)

func TestShellCompletionKnowsTenantsAndProjections(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "acme", "shop: north")
		p.must(t, done, "events", "append", "order-1", "Bounce", "--tenant", "acme")
		p.startNodeOf(t, "shop-1", "", "mails,totals,order totals,shop:sums,mails@2")
		p.await(t, `(?s)acme/mails +live +0 +1 .*shop: north/totals +live`, "projections", "status", "--all-tenants")
		_, after, _ := strings.Cut(p.must(t, done, "dead-letters", "list", "mails", "--tenant", "acme", "--json"),
			`"id":`)
		id, _, _ := strings.Cut(after, ",")
		const nothing, fileNames, files = ":4", ":0", ":8"
		for _, c := range []struct{ line, want string }{
			{"tenants|pause|", "acme|default|shop: north|:4"},
			{"tenants|pause|acme|", "default|shop: north|:4"},
			{"tenants|create|", nothing},
			{"projections|list|--tenant|", "acme|default|shop: north|:4"},
			{"projections|pause|", "mails|mails@2|order totals|shop:sums|totals|:4"},
			{"projections|pause|mails|", "mails@2|order totals|shop:sums|totals|:4"},
			{"projections|status|--tenant|shop: north|order totals|", "mails|mails@2|shop:sums|totals|:4"},
			{"projections|swap|", "mails@2|:4"},
			{"projections|swap|mails@2|", nothing},
			{"projections|rename|mails|", nothing},
			{"projections|reset|mails|", nothing},
			{"projections|create|x|--from|", "beginning|end|:4"},
			{"dead-letters|list|--tenant|acme|totals|", "mails|mails@2|order totals|shop:sums|:4"},
			{"dead-letters|list|--state|", "parked|replaying|resolved|discarded|:4"},
			{"dead-letters|show|--tenant|acme|mails|", id + "\tBounce of order-1: division by zero|:4"},
			{"dead-letters|replay|--tenant|acme|mails|" + id + "|", nothing},
			{"nodes|", nothing},
			{"nodes|--file|", fileNames},
			{"events|import|", "ndjson|gz|" + files},
			{"events|export|--output|", "ndjson|gz|" + files},
		} {
			args := append([]string{"__complete"}, p.flags...)
			out, _, status := place{}.run(t, append(args, strings.Split(c.line, "|")...)...)
			if got := strings.ReplaceAll(strings.TrimSuffix(out, "\n"), "\n", "|"); status != done || got != c.want {
				t.Errorf("%q: status %d, %q, want %q", c.line, status, got, c.want)
			}
		}
		if out := p.must(t, done, "completion", "bash"); !strings.Contains(out, "__start_millrace") {
			t.Errorf("%.200s", out)
		}
	})
}
