package supervisor

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/actors"
)

func TestProjectionWithWorkThatDoesNotChangeIsStuck(t *testing.T) {
	now, long := time.Now(), time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		entry actors.ProjectionEntry
		want  bool
	}{
		"busy within its limit":     {actors.ProjectionEntry{State: actors.Live, Busy: now.Add(-time.Minute), Limit: time.Minute, Changed: long}, false},
		"busy beyond its limit":     {actors.ProjectionEntry{State: actors.Live, Busy: long, Limit: time.Minute, Changed: now}, true},
		"behind and still for long": {actors.ProjectionEntry{State: actors.CatchUp, Mark: 2, Position: 1, Changed: long}, true},
		"behind since just now":     {actors.ProjectionEntry{State: actors.CatchUp, Mark: 2, Position: 1, Changed: now}, false},
		"at the end":                {actors.ProjectionEntry{State: actors.Live, Mark: 2, Position: 2, Changed: long}, false},
		"waiting":                   {actors.ProjectionEntry{State: actors.Waiting, Mark: 2, Changed: long}, false},
		"behind, waits for a slot":  {actors.ProjectionEntry{State: actors.Live, Mark: 2, Position: 1, Changed: long, Queued: true}, false},
		"busy, waits for a slot":    {actors.ProjectionEntry{State: actors.Live, Mark: 2, Busy: long, Changed: long, Queued: true}, false},
		"failed":                    {actors.ProjectionEntry{State: actors.Failed, Mark: 2, Changed: long}, false},
	} {
		if got := Stuck(test.entry); got != test.want {
			t.Errorf("%s: stuck is %v", name, got)
		}
	}
}
