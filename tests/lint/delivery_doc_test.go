package lint_test

import (
	"regexp"
	"strings"
	"testing"
)

func TestWebhookRecipeIsTested(t *testing.T) {
	function := regexp.MustCompile(`(?ms)^func post\(.*?^}\n`).FindString(contentOf(t, "example_deliver_test.go"))
	if function == "" || !strings.Contains(contentOf(t, "docs/delivery.md"), "```go\n"+function+"```\n") {
		t.Errorf("docs/delivery.md does not have\n%s", function)
	}
	if !strings.Contains(contentOf(t, "tests/delivery_crash_test.go"), function) {
		t.Error("the test of webhooks has another function post")
	}
}
