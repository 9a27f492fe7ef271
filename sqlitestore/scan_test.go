package sqlitestore

import (
	"database/sql/driver"
	"encoding/json"
	"math"
	"testing"
)

// The clock of a machine may be anywhere.
func TestEventOfAnyTimeHasJSON(t *testing.T) {
	t.Parallel()
	for _, micros := range []int64{0, math.MinInt64, math.MaxInt64, -1 << 60, 1 << 60} {
		const id = 1<<40 + 7
		_, sum := checksum(nil, id, 1, micros, "s", "T", "{}", "", "", "")
		row := eventRow{int64(id), "s", int64(1), "T", []byte("{}"), nil, nil, nil, driver.Value(micros), sum}
		e, _, err := row.envelope(nil)
		if err != nil || e.Position != 7 {
			t.Fatal(e, err)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("%d microseconds: %v", micros, err)
		}
	}
}
