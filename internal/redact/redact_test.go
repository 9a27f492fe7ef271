package redact

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The headers of an event that a program appends are an object of strings.
func TestNoHeadersOfAnAppendAreThoseOfARedactedEvent(t *testing.T) {
	t.Parallel()
	for headers, redacted := range map[string]bool{
		Headers(time.Now()):                            true,
		`{"redacted": {"at": "2026-11-28T13:30:00Z"}}`: true, // as PostgreSQL prints it
		``: false, `{}`: false, `{"redacted":"{"}`: false, `{"redacted": "yes"}`: false, `{"redactedBy":{}}`: false,
		`{"a":"b","redacted":"{"}`: false,
	} {
		if Is([]byte(headers)) != redacted {
			t.Errorf("%s: %v", headers, !redacted)
		}
	}
}
