package supervisor

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/machine"
)

func TestProjectionWithWorkThatDoesNotChangeIsStuck(t *testing.T) {
	now, long := time.Now(), time.Now().Add(-time.Hour)
	behind, atEnd := machine.Status{Phase: machine.Live, Mark: 2, Position: 1},
		machine.Status{Phase: machine.Live, Mark: 2, Position: 2}
	for name, test := range map[string]struct {
		entry actors.ProjectionEntry
		want  bool
	}{
		"busy within its limit": {
			actors.ProjectionEntry{Status: atEnd, Busy: now.Add(-time.Minute), Limit: time.Minute, Changed: long},
			false,
		},
		"busy beyond its limit": {
			actors.ProjectionEntry{Status: atEnd, Busy: long, Limit: time.Minute, Changed: now}, true,
		},
		"behind and still for long": {actors.ProjectionEntry{Status: behind, Changed: long}, true},
		"behind since just now":     {actors.ProjectionEntry{Status: behind, Changed: now}, false},
		"at the end":                {actors.ProjectionEntry{Status: atEnd, Changed: long}, false},
		"waiting": {
			actors.ProjectionEntry{Status: machine.Status{Phase: machine.Waiting, Mark: 2}, Changed: long}, false,
		},
		"failed": {
			actors.ProjectionEntry{Status: machine.Status{Phase: machine.Failed, Mark: 2}, Changed: long}, false,
		},
		"behind, waits for a slot": {actors.ProjectionEntry{Status: behind, Changed: long, Queued: true}, false},
		"busy, waits for a slot": {
			actors.ProjectionEntry{Status: behind, Busy: long, Changed: long, Queued: true}, false,
		},
	} {
		if got := Stuck(test.entry, StuckAfter); got != test.want {
			t.Errorf("%s: stuck is %v", name, got)
		}
	}
}
