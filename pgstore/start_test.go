package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Admin returns the error of Begins to its callers, so the error says which read failed.
func TestErrorOfBeginsNamesTheReadThatFailed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := store.port().Begins(ctx, []engine.NewProjection{
		{Tenant: projection.DefaultTenant, Name: "p", Start: projection.Start{End: true}},
	})
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "list tenants: ") {
		t.Errorf("the error is %v", err)
	}
}
