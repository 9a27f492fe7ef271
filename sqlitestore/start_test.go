package sqlitestore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Admin returns the error of Begins to its callers, so the error says which read failed.
func TestErrorOfBeginsNamesTheReadThatFailed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	for _, start := range []projection.Start{{End: true}, {Time: time.Unix(1, 0)}} {
		_, err := store.port().Begins(ctx, []engine.NewProjection{
			{Tenant: projection.DefaultTenant, Name: "p", Start: start},
		})
		if !errors.Is(err, context.Canceled) ||
			!strings.HasPrefix(err.Error(), `find the last event of tenant "default": `) {
			t.Errorf("the error is %v", err)
		}
	}
}
