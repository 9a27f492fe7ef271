package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// queried returns the queries of docs/alerts.yml and docs/grafana.json, with the names of their alerts and panels.
func queried(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	rules, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?ms)^      - alert: (\w+)\n        expr: (.*?)\n        \w`).FindAllStringSubmatch(string(rules), -1) {
		all["alert "+m[1]] = m[2]
	}
	if n := strings.Count(string(rules), "- alert:"); len(all) != n {
		t.Fatalf("%d of %d alerts were read", len(all), n)
	}
	raw, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			all["variable "+v.Name] = string(v.Query)
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d queries were read", len(all))
	}
	return all
}

// storeLabel is the label of programs with several runtimes, which others do not have.
const storeLabel = "millrace_store"

// faults returns what a query uses and a scrape does not have: metrics, labels of theirs, and values of these labels.
func faults(query, scraped string) (found []string) {
	found = append(found, unbalanced(query)...)
	names := families(scraped)
	name := regexp.MustCompile(`\bmillrace_\w+`)
	labels := regexp.MustCompile(`([a-z_]+)(=|!=|=~)\\?"([^"\\]*)\\?"`)
	for _, m := range regexp.MustCompile(`\b(millrace_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(query, -1) {
		if strings.Contains(scraped, m[1]+`="`) || m[1] == storeLabel {
			continue // a label
		}
		if names[m[1]] == "" {
			found = append(found, "there is no metric "+m[1])
			continue
		}
		series := grep(scraped, m[1]+"{") + grep(scraped, m[1]+" ")
		for _, l := range labels.FindAllStringSubmatch(m[2], -1) {
			if l[1] == storeLabel {
				continue
			}
			want := l[1] + `="` + l[3] + `"`
			if l[2] == "=~" || l[3] == "" {
				want = l[1] + `="`
			}
			if !strings.Contains(series, want) {
				found = append(found, m[1]+" has no label "+want)
			}
		}
	}
	for _, by := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(by[1], ",") {
			label = strings.TrimSpace(label)
			if label == "instance" || slices.Contains(name.FindAllString(query, -1), label) ||
				strings.Contains(scraped, label+`="`) {
				continue // Prometheus adds the instance; labels with our prefix were checked above
			}
			found = append(found, "there is no label "+label)
		}
	}
	return found
}

// unbalanced returns a fault if the parentheses of a query do not match.
func unbalanced(query string) []string {
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(query, pair[:1]) != strings.Count(query, pair[1:]) {
			return []string{"unbalanced " + pair}
		}
	}
	return nil
}

func TestDashboardAndAlertsUseMetricsThatExist(t *testing.T) {
	text := scrape(t, busy(t, options{file: t.TempDir() + "/shop.db"}))
	for name, query := range queried(t) {
		for _, fault := range faults(query, text) {
			t.Errorf("%s: %s: %s", name, fault, query)
		}
	}
	for query, want := range map[string]string{
		`millrace_projection_lagg`:                                      "there is no metric millrace_projection_lagg",
		`rate(millrace_event_applied[5m])`:                              "there is no metric millrace_event_applied",
		`millrace_projection_count{millrace_state="filed"}`:             `millrace_projection_count has no label millrace_state="filed"`,
		`millrace_lease_owned{millrace_projection_name=~"$p"}`:          `millrace_lease_owned has no label millrace_projection_name="`,
		`sum by (tenant) (millrace_projection_lag)`:                     "there is no label tenant",
		`sum by (millrace_tenant) (millrace_projection_lag)`:            "there is no metric millrace_tenant",
		`sum(millrace_projection_lag`:                                   "unbalanced ()",
		`sum by (instance, millrace_state) (millrace_projection_count)`: "",
	} {
		if found := strings.Join(faults(query, text), "; "); found != want {
			t.Errorf("%s: %q, want %q", query, found, want)
		}
	}
}
