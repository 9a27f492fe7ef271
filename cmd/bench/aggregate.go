package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

var aggregateScenario = scenario{
	name: "aggregate",
	about: `Loads of an aggregate from streams of different lengths, one after the other, and commands: each loads an aggregate, decides, and appends
		one event at the version that was loaded. After 20 events a command goes to the next stream. "by hand" does the same with a pool of pgx and
		prepared statements: it reads by the statements of millrace, decodes and folds the events, and appends by the statement of the scenario
		append with a condition. "millrace, cache" reads the last event, since the state is in memory. Writers of separate streams never meet. Those of shared streams all write to the same four.`,
	cases: func(o sizeOptions) (cases []benchCase) {
		for _, n := range o.aggregateEvents {
			cases = append(cases, benchCase{name: fmt.Sprintf("load of %d events", n),
				metrics: []metric{{"loads/s", "", higher, true}},
				goals: []goal{{contender: "millrace", metric: "loads/s", to: "by hand", atLeast: 0.9},
					{contender: "millrace, snapshot", metric: "loads/s", to: "by hand, snapshot", atLeast: 0.9}},
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					return loadContenders(ctx, e, o, n)
				}})
		}
		for _, n := range []int{1, o.most()} {
			for _, shared := range []bool{false, true} {
				name := "commands on separate streams, "
				if shared {
					name = "commands on shared streams, "
				}
				cases = append(cases, benchCase{name: name + writersText(n),
					metrics: []metric{{"commands/s", "", higher, true}},
					goals:   []goal{{contender: "millrace", metric: "commands/s", to: "by hand", atLeast: 0.9}},
					prepare: func(ctx context.Context, e *env) ([]contender, error) {
						return commandContenders(ctx, e, o, n, shared)
					}})
			}
		}
		return cases
	},
}

// booked is the event of the scenario, and balance its aggregate.
type booked struct {
	Amount float64 `json:"amount"`
	Note   string  `json:"note"`
}

func (booked) EventType() string { return "booked" }

type balance struct {
	Amount float64
	Events int
}

func (b balance) after(body booked) balance { return balance{b.Amount + body.Amount, b.Events + 1} }

var (
	balances = aggregate.New("balance",
		aggregate.On(func(b balance, e event.Of[booked]) balance { return b.after(e.Body) }))
	saving  = balances.Snapshot(100, 1)
	oneMore = booked{Amount: 26.85, Note: "one of many"}
)

func book(balance) ([]event.Event, error) { return []event.Event{event.New(oneMore)}, nil }

// handAggregate loads and appends by hand.
type handAggregate struct {
	pool *pgxpool.Pool
	// read has the events of stream $1 from version $2 on, at most $3. save has the snapshot of stream $1 of tenant $5
	// before them. Both are those of millrace, with $4 as the first position and $6 as the fingerprint. add appends an
	// event to stream $1 at version $2, with type $3 and body $4.
	read, save, add string
}

func newHandAggregate(ctx context.Context, e *env, tenant *pgstore.Tenant, connections int) (handAggregate, error) {
	pool, err := e.pool(ctx, connections, nil)
	schema := tenant.EventsSchema()
	const columns = "global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at"
	read := "select " + columns + " from " + schema + ".events where (stream_id, stream_version) >= ($1, %s) and " +
		"(stream_id, stream_version) <= ($1, 9223372036854775807) and global_seq > $4 order by stream_id, stream_version limit $3"
	return handAggregate{pool: pool, read: fmt.Sprintf(read, "$2"),
		save: `with snapshot as materialized (
			select s.generation, e.global_seq, s.version, s.event_time, case when e.global_seq is not null then s.state end as state
			  from ` + storeSchema + `.snapshots s
			  left join ` + schema + `.events e on (e.stream_id, e.stream_version) = ($1, s.version)
			   and e.global_seq = s.position and e.created_at = s.event_time and s.fingerprint = $6 and s.version >= $2
			 where s.tenant = $5 and s.stream_id = $1
		)
		(select -coalesce(global_seq, 0) - 1, $1::text, version, '', null::jsonb, to_jsonb(generation), state, null::text,
			coalesce(event_time, timestamptz 'epoch') from snapshot)
		union all (` + fmt.Sprintf(read, "coalesce((select version + 1 from snapshot where state is not null), $2)") + ")",
		add: `with stream as (
			update ` + schema + `.streams set version = version + 1 where stream_id = $1 and version = $2 returning version
		), made as (
			insert into ` + schema + `.streams (stream_id, version) select $1, 1 where $2 = 0 on conflict do nothing returning version
		)
		insert into ` + schema + `.events (stream_id, stream_version, type, body)
		select $1, version, $3::text, $4::jsonb from (select version from stream union all select version from made) s returning global_seq`}, err
}

// handPage is the number of events of a read by hand: all.
const handPage = 1_000_000

// load returns the state and version of a stream.
func (h handAggregate) load(ctx context.Context, sql string, args ...any) (state balance, version int64, err error) {
	var kind string
	var body []byte
	var snapshot *string
	rows, err := h.pool.Query(ctx, sql, args...)
	if err != nil {
		return state, 0, err
	}
	_, err = pgx.ForEachRow(rows, []any{nil, nil, &version, &kind, &body, nil, &snapshot, nil, nil}, func() error {
		if kind == "" {
			return json.Unmarshal([]byte((*snapshot)[8:]), &state) // after the checksum
		}
		var b booked
		if err := json.Unmarshal(body, &b); err != nil {
			return err
		}
		state = state.after(b)
		return nil
	})
	return state, version, err
}

// do decides on a stream and appends, again after a conflict. It returns the state after that.
func (h handAggregate) do(ctx context.Context, stream string) (balance, error) {
	body, err := json.Marshal(oneMore)
	if err != nil {
		return balance{}, err
	}
	for {
		state, version, err := h.load(ctx, h.read, stream, 1, handPage, 0)
		if err != nil {
			return state, err
		}
		tag, err := h.pool.Exec(ctx, h.add, stream, version, "booked", string(body))
		if err != nil || tag.RowsAffected() == 1 {
			return state.after(oneMore), err
		}
	}
}

// fillBalance appends that many events to a balance, and saves a snapshot with the last one.
func fillBalance(ctx context.Context, tenant *pgstore.Tenant, events int) error {
	for left := events - 1; left > 0; left -= 1000 {
		list := make([]event.Event, min(left, 1000))
		for i := range list {
			list[i] = event.New(oneMore)
		}
		if _, err := tenant.Append(ctx, balances.Stream("1"), event.Any, list...); err != nil {
			return err
		}
	}
	_, err := saving.Snapshot(1, 1).Do(ctx, tenant, "1", book)
	return err
}

func loadContenders(ctx context.Context, e *env, o sizeOptions, events int) ([]contender, error) {
	store, err := e.store(ctx, 4, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	tenant := tenants[0]
	if err := fillBalance(ctx, tenant, events); err != nil {
		return nil, err
	}
	hand, err := newHandAggregate(ctx, e, tenant, 4)
	if err != nil {
		return nil, err
	}
	if _, err := e.Pool.Exec(ctx, "vacuum analyze"); err != nil {
		return nil, err
	}
	fingerprint := ""
	if err := e.Pool.QueryRow(ctx, "select fingerprint from "+storeSchema+".snapshots").Scan(&fingerprint); err != nil {
		return nil, err
	}
	stream := balances.Stream("1")
	loads := func(name string, load func(ctx context.Context) (balance, error)) contender {
		return contender{name, func(ctx context.Context, _ int) (figures, verify, error) {
			var state balance
			_, rate, err := together(ctx, o.aggregateTime, 1, func(ctx context.Context, _, _ int) (err error) {
				state, err = load(ctx)
				return err
			})
			return figures{rate}, func(context.Context) error {
				if state.Events != events {
					return fmt.Errorf("%s: the state has %d events, want %d", name, state.Events, events)
				}
				return nil
			}, err
		}}
	}
	of := func(c *aggregate.Category[balance]) func(ctx context.Context) (balance, error) {
		return func(ctx context.Context) (balance, error) {
			a, err := c.Load(ctx, tenant, "1")
			return a.State, err
		}
	}
	return []contender{
		loads("by hand", func(ctx context.Context) (balance, error) {
			state, _, err := hand.load(ctx, hand.read, stream, 1, handPage, 0)
			return state, err
		}),
		loads("millrace", of(balances)),
		loads("by hand, snapshot", func(ctx context.Context) (balance, error) {
			state, _, err := hand.load(ctx, hand.save, stream, 1, handPage, 0, tenant.Name(), fingerprint)
			return state, err
		}),
		loads("millrace, snapshot", of(saving)),
		loads("millrace, cache", of(balances.Cache(1<<20))),
	}, nil
}

const (
	// streamLength is the number of events after which commands go to the next stream, and sharedStreams how many all
	// writers share.
	streamLength  = 20
	sharedStreams = 4
)

func commandContenders(ctx context.Context, e *env, o sizeOptions, writers int, shared bool) ([]contender, error) {
	store, err := e.store(ctx, writers+2, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	hand, err := newHandAggregate(ctx, e, tenants[0], writers)
	if err != nil {
		return nil, err
	}
	total := 0
	run := func(name string, do func(ctx context.Context, id string) error) contender {
		return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
			prefix := fmt.Sprint(name[:1], round, ".")
			// As in the scenario append, the pool connects and prepares when it is first used.
			warm, _, err := carryOut(ctx, o.aggregateTime/5, prefix+"w", writers, shared, do)
			if err != nil {
				return nil, nil, err
			}
			n, rate, err := carryOut(ctx, o.aggregateTime, prefix, writers, shared, do)
			total += warm + n
			return figures{rate}, e.streamsAreWhole(tenants[0], total), err
		}}
	}
	return []contender{
		run("by hand", func(ctx context.Context, id string) error {
			_, err := hand.do(ctx, balances.Stream(id))
			return err
		}),
		run("millrace", func(ctx context.Context, id string) error {
			_, err := balances.Do(ctx, tenants[0], id, book, aggregate.Retries(1_000_000))
			return err
		}),
	}, nil
}

// carryOut lets writers carry out commands for a while.
func carryOut(ctx context.Context, duration time.Duration, prefix string, writers int, shared bool,
	do func(ctx context.Context, id string) error) (n int, rate float64, err error) {
	var all atomic.Int64
	return together(ctx, duration, writers, func(ctx context.Context, w, i int) error {
		if shared {
			next := int(all.Add(1)) - 1
			w, i = next%sharedStreams, next/sharedStreams
		}
		return do(ctx, fmt.Sprintf("%s%d.%d", prefix, w, i/streamLength))
	})
}
