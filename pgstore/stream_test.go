package pgstore

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

// Times of other programs that Go cannot print are described as ReadStream returns them, and descriptions work in every
// mode of the driver, whose cache of prepared statements gets none.
func TestStreamWithInfiniteTimes(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, `insert into millrace_default.streams values ('s', 2);
		insert into millrace_default.events (stream_id, stream_version, type, body, created_at) values ('s', 1, 'T', '{}', '-infinity'), ('s', 2, 'T', '{}', 'infinity')`)
	want := event.StreamInfo{ID: "s", Version: 2, LastEvent: time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)}
	for _, mode := range queryModes {
		name, other := mode.String(), must(openPool(t, store.pool.Config().ConnString(), mode))(t)
		if found, err := other.Stream(testContext(t), "s"); err != nil || found != want {
			t.Errorf("%s: %+v, %v, want %+v", name, found, err, want)
		}
		if n := one[int](t, other,
			"select count(*) from pg_prepared_statements where statement like '%created_at%'"); n != 0 {
			t.Errorf("%s: %d statements are prepared", name, n)
		}
	}
}
