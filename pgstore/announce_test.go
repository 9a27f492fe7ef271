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
		"default":      {"default", engine.UnknownPosition}, // a writer that is no store
		"default\n7":   {"default", 7},
		"zwei Wörter":  {"zwei Wörter", engine.UnknownPosition},
		"default\n":    {"default", engine.UnknownPosition},
		"default\nsix": {"default", engine.UnknownPosition},
		"default\n-6":  {"default", engine.UnknownPosition},
		"default\n0":   {"default", engine.UnknownPosition},
	} {
		if tenant, position := announced(payload); tenant != want.tenant || position != want.position {
			t.Errorf("%q announces %q up to %d, want %+v", payload, tenant, position, want)
		}
	}
	for _, position := range []int64{1, engine.UnknownPosition} {
		if tenant, to := announced(announcement("a b", position)); tenant != "a b" || to != position {
			t.Errorf("got %q up to %d, want %d", tenant, to, position)
		}
	}
}
