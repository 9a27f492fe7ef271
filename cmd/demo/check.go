package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// shownDifferences is how many differing rows of a table are told.
const shownDifferences = 3

// verdict is what a check found. It is good when there is nothing wrong.
type verdict struct {
	events, streams int64
	models          []checked
	wrong           []string
}

// checked is one read model that was compared.
type checked struct {
	name                  string
	rows, parked, skipped int64
	wrong                 bool
}

// check compares every read model with a plain SQL count over the events. What is parked is left out of the count, by
// the positions in the dead letters, and what was to be skipped by those of the chosen events; and what is parked or
// skipped must be what was chosen to fail, no more and no less.
func check(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store, chosen poison, onError projection.Action) (verdict, error) {
	events := pgx.Identifier{store.EventsSchema(), "events"}.Sanitize()
	var v verdict
	err := pool.QueryRow(ctx, "select count(*), count(distinct stream_id) from "+events).Scan(&v.events, &v.streams)
	if err != nil {
		return v, fmt.Errorf("count the events: %w", err)
	}
	skipped, err := countSkipped(ctx, store)
	if err != nil {
		return v, err
	}
	for _, m := range readModels {
		letters, err := deadLetters(ctx, store, m)
		if err != nil {
			return v, err
		}
		toPark, toSkip := chosen.at(m.name), map[place]bool{}
		if onError == projection.ActionSkip {
			toPark, toSkip = toSkip, toPark
		}
		wrong := compareParked(m.name, letters, toPark)
		if n := skipped[m.name]; n != int64(len(toSkip)) {
			wrong = append(wrong, fmt.Sprintf("%s skipped %d events, but %d were to be skipped", m.name, n, len(toSkip)))
		}
		left, err := positions(ctx, pool, events, toSkip)
		if err != nil {
			return v, err
		}
		for _, l := range letters {
			left = append(left, l.Position)
		}
		rows, differing, err := compareRows(ctx, pool, events, m, left)
		if err != nil {
			return v, fmt.Errorf("check %s: %w", m.name, err)
		}
		wrong = append(wrong, differing...)
		v.models = append(v.models, checked{name: m.name, rows: rows, parked: int64(len(letters)), skipped: skipped[m.name], wrong: len(wrong) > 0})
		v.wrong = append(v.wrong, wrong...)
	}
	return v, nil
}

// mustHold adds what is wrong where the store does not hold what was appended.
func (v *verdict) mustHold(appended int64) {
	if v.events != appended {
		v.wrong = append(v.wrong, fmt.Sprintf("the store holds %d events, but %d were appended", v.events, appended))
	}
}

// err is nil where everything agrees.
func (v verdict) err() error {
	if len(v.wrong) == 0 {
		return nil
	}
	return errors.New("not verified: " + strings.Join(v.wrong, "; "))
}

// explain tells what is wrong, a line each.
func (v verdict) explain(out io.Writer) {
	for _, w := range v.wrong {
		fmt.Fprintf(out, "  %s\n", program.OneLine(w))
	}
}

// outcome is what a comparison came to, for people.
func outcome(wrong bool) string {
	if wrong {
		return "DIFFERS"
	}
	return "equal"
}

func deadLetters(ctx context.Context, store *pgstore.Store, m readModel) ([]projection.DeadLetter, error) {
	const page = 1000
	var letters []projection.DeadLetter
	for after := int64(0); ; {
		more, err := store.DeadLetters(m.id()).List(ctx, pgstore.Page{Beyond: after, Limit: page})
		if err != nil {
			return nil, err
		}
		letters = append(letters, more...)
		if len(more) < page {
			return letters, nil
		}
		after = more[len(more)-1].Position
	}
}

// countSkipped tells how many events each projection skipped.
func countSkipped(ctx context.Context, store *pgstore.Store) (map[string]int64, error) {
	rows, err := store.Port().Projections(ctx, []string{projection.DefaultTenant})
	if err != nil {
		return nil, err
	}
	skipped := make(map[string]int64, len(rows))
	for _, row := range rows {
		skipped[row.ID.Name] = row.Skipped
	}
	return skipped, nil
}

// positions finds where the events at these places stand.
func positions(ctx context.Context, pool *pgxpool.Pool, events string, places map[place]bool) ([]int64, error) {
	var streams []string
	var versions []int64
	for p := range places {
		streams, versions = append(streams, p.stream), append(versions, p.version)
	}
	rows, err := pool.Query(ctx, `select e.global_seq from `+events+` e join unnest($1::text[], $2::bigint[]) as p (stream, version)
		on e.stream_id = p.stream and e.stream_version = p.version`, streams, versions)
	if err != nil {
		return nil, fmt.Errorf("find the chosen events: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find the chosen events: %w", err)
	}
	return found, nil
}

func compareParked(name string, letters []projection.DeadLetter, chosen map[place]bool) (wrong []string) {
	met := 0
	for _, l := range letters {
		if chosen[place{l.Stream, l.Version}] {
			met++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s parked position %d, which was not chosen to fail: %s", name, l.Position, l.Error))
	}
	if met < len(chosen) {
		wrong = append(wrong, fmt.Sprintf("%s parked %d of the %d events that were chosen to fail", name, met, len(chosen)))
	}
	return shorten(wrong)
}

// compareRows returns how many rows the table has, and how it differs from the count without the events that are left out.
func compareRows(ctx context.Context, pool *pgxpool.Pool, events string, m readModel, left []int64) (n int64, wrong []string, err error) {
	if err := pool.QueryRow(ctx, "select count(*) from ("+m.got+") as got").Scan(&n); err != nil {
		return 0, nil, err
	}
	rows, err := pool.Query(ctx, `
		with out (position) as (select unnest($1::bigint[])),
		     counted as (select e.* from `+events+` e where not exists (select from out o where o.position = e.global_seq)),
		     want (key, value) as (`+m.want+`),
		     got (key, value) as (`+m.got+`)
		select key, coalesce(got.value, 'nothing'), coalesce(want.value, 'nothing')
		  from want full join got using (key)
		 where got.value is distinct from want.value
		 order by key`, append([]int64{}, left...))
	if err != nil {
		return 0, nil, err
	}
	var key, got, want string
	_, err = pgx.ForEachRow(rows, []any{&key, &got, &want}, func() error {
		wrong = append(wrong, fmt.Sprintf("%s holds %s for %q, but the events say %s", m.name, got, key, want))
		return nil
	})
	return n, shorten(wrong), err
}

// shorten keeps the first few and says how many there are besides.
func shorten(wrong []string) []string {
	if len(wrong) <= shownDifferences {
		return wrong
	}
	return append(wrong[:shownDifferences:shownDifferences], fmt.Sprintf("and %d more like that", len(wrong)-shownDifferences))
}
