package valid

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestJSONHasEachTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	if got := Time(now); !got.Equal(now) || got.Location() != time.UTC {
		t.Errorf("%v became %v", now, got)
	}
	far := []*time.Location{time.UTC, time.FixedZone("east", 23*3600), time.FixedZone("west", -23*3600)}
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.UnixMicro(math.MaxInt64), time.UnixMicro(math.MinInt64),
		time.Date(10000, 1, 1, 0, 0, 0, 0, far[1]),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC)} {
		for _, zone := range far {
			if _, err := json.Marshal(Time(at).In(zone)); err != nil {
				t.Errorf("%v in %v: %v", at, zone, err)
			}
		}
	}
}
