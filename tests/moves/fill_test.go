package moves_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
)

// filler fills a store with random contents.
type filler struct {
	testing.TB
	*rand.Rand
	source *place
}

// names are texts that are easily changed on the way.
var names = []string{
	"a", "A", "ä", "z", "日本 語", "😀", "it's", `"quoted"`, `\`, "%", "{control}", "$1", "\u200d", "~", "line\nbreak",
	"\u007f", strings.Repeat("x", 480),
}

func (f *filler) name() string { return names[f.IntN(len(names))] }

func (f *filler) optional(s string) string {
	if f.IntN(2) == 0 {
		return ""
	}
	return s
}

// fill fills a tenant of a file with events, keys, aliases, projections, dead letters, parked streams, commands and
// erasures.
func fill(t testing.TB, source *place, tenant string, seed uint64, events int) {
	t.Helper()
	t.Logf("seed %d", seed)
	source.create(t, tenant)
	f := &filler{t, rand.New(rand.NewPCG(seed, 0)), source}
	f.events(tenant, events)
	f.projections(tenant)
}

// events appends events, and deletes and redacts some.
func (f *filler) events(tenant string, n int) {
	t := must(f.source.file.ForTenant(tenant))(f)
	bodies := []string{
		`{"z":1,"a":[1.10,1e3,-0,{}],"a":2}`, `null`, `"\u00e9\ud83d\ude00"`, ` [ true , false ] `,
		`12345678901234567890.000100`, `{"":"\u0001"}`, `1E-7`,
	}
	must(t.Append(testContext(f), "erased", event.Any, happened, happened))(f)
	for i := 0; i < n; {
		stream, together := f.name()+fmt.Sprint(f.IntN(5)), 1+f.IntN(5)
		list := make([]event.Event, together)
		for k := range list {
			list[k] = event.Event{
				Type: f.name(), Body: json.RawMessage(bodies[f.IntN(len(bodies))]), CausationID: f.optional(f.name()),
				CorrelationID: f.optional(f.name()),
			}
			if f.IntN(3) == 0 {
				list[k].Headers = map[string]string{f.name(): f.name(), "empty": "", "nul": "a\u2400\u0001"}
			}
		}
		expected := event.Any
		if f.IntN(3) == 0 {
			expected = expected.WithKey(fmt.Sprint(excerptOf(f.name()), i))
		}
		must(t.Append(testContext(f), stream, expected, list...))(f)
		i += together
	}
	f.source.exec(f, `delete from millrace_events where tenant = (select id from millrace_tenants where name = ?1)
		and position % 17 = 3`, tenant)
	f.source.exec(f, `update millrace_append_keys set created_at = created_at - ?`, f.Int64N(1e9))
	must(t.EraseStream(testContext(f), "erased", "request "+f.name()))(f)
	must(t.RedactEvents(testContext(f), []int64{1, 5}, "request 17"))(f)
	for i := range 3 {
		must(t.Alias(testContext(f), fmt.Sprint(excerptOf(f.name()), i)))(f)
	}
}

func excerptOf(s string) string { return s[:min(len(s), 40)] }

// projections inserts projections in several states, with dead letters and commands.
func (f *filler) projections(tenant string) {
	for _, name := range []string{"plain", "split", "resplit", "Ünïcode"} {
		partitions := 1
		if name == "split" || name == "resplit" {
			partitions = 2 + f.IntN(3)
		}
		token := uuid.NewString()
		for _, n := range partition.Numbers(partitions) {
			slots := partition.RangeOf(n, partitions)
			passed := "[]"
			if name == "resplit" {
				passed = fmt.Sprintf("[[%d,%d,%d],[%d,%d,%d]]", slots.From, slots.From+5, 1+f.IntN(20), slots.From+5,
					slots.To-1, 1+f.IntN(20))
			}
			f.projection(tenant, name, n, partitions, slots, passed, token)
		}
	}
}

func (f *filler) projection(tenant, name string, n, partitions int, slots partition.Range, passed, token string) {
	now := time.Now().UnixMicro()
	maybe := func(v any) any {
		if f.IntN(2) == 0 {
			return nil
		}
		return v
	}
	f.source.exec(f,
		`insert into millrace_projections (tenant, name, partition, partitions, slot_from, slot_to, passed, token, desired_state, tenant_suspended,
			failed_reason, failed_epoch, halted, skipped, parked, failing_position, attempts, crash_position, crash_attempts, crash_since, failing_since,
			last_error, last_error_at, missing_object, delivers, rebuild_since, rebuild_from, rebuild_to, next_attempt_at)
		values ((select id from millrace_tenants where name = ?), ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		tenant, name, n, partitions, slots.From, slots.To, passed, token, []string{"run", "pause"}[f.IntN(2)],
		maybe("why "+f.name()), maybe(f.IntN(9)), f.IntN(2), f.IntN(100), 7, f.IntN(50), f.IntN(5), f.IntN(50),
		f.IntN(5), maybe(now-5), maybe(now-f.Int64N(1e12)),
		maybe("broken \x00 \xff "+f.name()), maybe(now), f.IntN(2), n%2, now, n, 10*n, maybe(now+5))
	owner, free := any(nil), any(now)
	if f.IntN(3) == 0 {
		owner, free = uuid.NewString(), nil
	}
	f.source.exec(f,
		`insert into millrace_leases (id, owner, epoch, checkpoint, crash_count, free_since) values ((select max(id) from millrace_projections), ?, ?, ?, ?, ?)`,
		owner, f.IntN(100), f.IntN(60), f.IntN(3), free)
	f.deadLetters(now)
}

// deadLetters inserts dead letters, parked streams and commands of the last projection.
func (f *filler) deadLetters(now int64) {
	for i, state := range []string{"parked", "replaying", "resolved", "discarded", "parked", "parked"} {
		var ended any
		if state == "resolved" || state == "discarded" {
			ended = now - int64(i)
		}
		f.source.exec(f,
			`insert into millrace_dead_letters (projection, position, stream_id, version, type, blocked_by_stream, state, error, stack, attempts,
				replays, open_replays, last_command, first_failed_at, last_failed_at, ended_at)
			values ((select max(id) from millrace_projections), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			2+7*i, f.name()+"0", i+1, f.name(), i/5, state, "failed\x00 "+f.name(), "stack\xff of "+
				f.name(), f.IntN(5), f.IntN(5), f.IntN(2), f.IntN(3)*i, now-100, now-50, ended)
	}
	f.source.exec(f,
		`insert into millrace_parked_streams (projection, stream_id, last_command) values ((select max(id) from millrace_projections), ?, ?),
		((select max(id) from millrace_projections), ?, 0)`, f.name()+"0", f.IntN(3), f.name()+"1")
	f.source.exec(f,
		`insert into millrace_commands (projection, kind, dead_letter_ids, max_events, created_at, ended_at) values
		((select max(id) from millrace_projections), 'replay', (select json_group_array(id) from millrace_dead_letters where state = 'parked'), 10, ?, ?),
		((select max(id) from millrace_projections), 'discard', null, 10, ?, null)`, now, now+1, now+2)
	f.source.exec(f, `insert into millrace_retired_projections (tenant, name, reason, successor, retired_at)
		select tenant, name || ' once', 'renamed', name, ?1 from millrace_projections where id = (select max(id) from millrace_projections)
		union all select tenant, name || ' gone', 'forgotten', null, ?1 + 1 from millrace_projections where id = (select max(id) from millrace_projections)
		on conflict do nothing`, now)
	f.source.exec(f,
		`insert into millrace_commands (root, projection, kind, stream_id, type, error, max_events, current_stream, after_position, done, failed, current_dead_letter, created_at)
		values ((select max(id) from millrace_commands), (select max(id) from millrace_projections), 'replay', ?, ?, ?, 100, ?, 5, 1, 2, (select max(id) from millrace_dead_letters), ?)`,
		f.name(), f.name(), f.name(), f.name()+"0", now)
}
