package pgstore

import (
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
)

func TestNotificationsAnnounceTenantsAndPositions(t *testing.T) {
	for payload, want := range map[string]struct {
		tenant   string
		position int64
	}{
		"default":      {"default", 0}, // a writer that is no store
		"default\n7":   {"default", 7},
		"zwei Wörter":  {"zwei Wörter", 0},
		"default\n":    {"default", 0},
		"default\nsix": {"default", 0},
		"default\n-6":  {"default", 0},
	} {
		if tenant, position := announced(payload); tenant != want.tenant || position != want.position {
			t.Errorf("%q announces %q up to %d, want %+v", payload, tenant, position, want)
		}
	}
	for position, want := range map[int64]int64{1: 1, engine.UnknownPosition: 0} {
		if tenant, to := announced(announcement("a b", position)); tenant != "a b" || to != want {
			t.Errorf("got %q up to %d, want %d", tenant, to, want)
		}
	}
}
