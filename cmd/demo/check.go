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
	lateReplay      bool // what failed was replayed when later events of its stream had been applied
}

// checked is one read model that was compared.
type checked struct {
	name              string
	rows              int64
	parked, behind    int64 // behind are those, of the parked and the replayed, that did not fail
	replayed, skipped int64
	disordered        int64 // rows that would differ had each stream been applied in order
	wrong             bool
}

// check compares every read model with a plain SQL count over the events. Which events are parked, replayed or skipped must be
// exactly those that the fault makes so, which follows from the events alone; what is parked or skipped is left out of the
// count.
func check(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store, f *fault) (verdict, error) {
	events := pgx.Identifier{store.EventsSchema(), "events"}.Sanitize()
	v := verdict{lateReplay: f.onError == projection.ActionPark && f.mended.Load()}
	err := pool.QueryRow(ctx, "select count(*), count(distinct stream_id) from "+events).Scan(&v.events, &v.streams)
	if err != nil {
		return v, fmt.Errorf("count the events: %w", err)
	}
	skipped, err := countSkipped(ctx, store)
	if err != nil {
		return v, err
	}
	for _, m := range readModels {
		found, err := lettersOf(ctx, store, m)
		if err != nil {
			return v, err
		}
		hit, err := f.hits(ctx, pool, events, m)
		if err != nil {
			return v, err
		}
		c := checked{name: m.name, skipped: skipped[m.name], parked: int64(len(found.parked)), replayed: int64(len(found.replayed)), behind: found.behind()}
		want := f.outcome(hit)
		wrong := append(compareLetters(m.name, "parked", found.parked, want.parked), compareLetters(m.name, "replayed", found.replayed, want.replayed)...)
		if n := len(found.discarded); n > 0 {
			wrong = append(wrong, fmt.Sprintf("%s has %d discarded events, but none was to be discarded", m.name, n))
		}
		if n := int64(len(want.skipped)); c.skipped != n {
			wrong = append(wrong, fmt.Sprintf("%s skipped %d events, but %d were to be skipped", m.name, c.skipped, n))
		}
		left, late := positions(append(want.parked, want.skipped...)), []int64{}
		if v.lateReplay {
			late = positions(want.replayed)
		}
		var differing []string
		if c.rows, differing, err = compareRows(ctx, pool, events, m, left, late); err != nil {
			return v, fmt.Errorf("check %s: %w", m.name, err)
		}
		wrong = append(wrong, shorten(differing)...)
		if len(late) > 0 {
			if _, differing, err = compareRows(ctx, pool, events, m, left, nil); err != nil {
				return v, fmt.Errorf("check %s: %w", m.name, err)
			}
			c.disordered = int64(len(differing))
		}
		c.wrong = len(wrong) > 0
		v.models = append(v.models, c)
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

// explain tells what became of the events that were put aside, and what is wrong, a line each.
func (v verdict) explain(out io.Writer) {
	if l := v.letters(); l.Parked > 0 {
		fmt.Fprintf(out, "\n%d events were parked: %d failed, %d came behind one of their stream that did; %d replayed, %d still parked\n",
			l.Parked, l.Parked-l.Behind, l.Behind, l.Replayed, l.Left)
	}
	for _, m := range v.models {
		if m.disordered > 0 {
			fmt.Fprintf(out, "%d rows of %s show the replayed event as the last, though later ones had been applied: -on-error park-stream keeps the order\n",
				m.disordered, m.name)
		}
	}
	for _, w := range v.wrong {
		fmt.Fprintf(out, "  %s\n", program.OneLine(w))
	}
}

// letters adds up what became of the events that were put aside.
func (v verdict) letters() (l letterSummary) {
	for _, m := range v.models {
		l.Parked += m.parked + m.replayed
		l.Behind += m.behind
		l.Replayed += m.replayed
		l.Left += m.parked
	}
	return l
}

// sentence is the verdict for people.
func (v verdict) sentence() string {
	if len(v.wrong) > 0 {
		return "not verified"
	}
	verdict := "verified: every event was applied exactly once"
	if l := v.letters(); l.Left > 0 {
		verdict += fmt.Sprintf(", but for the %d that were to be parked", l.Left)
	} else if l.Replayed > 0 {
		order := "each stream in order"
		if v.lateReplay {
			order = "behind what came after them"
		}
		verdict += fmt.Sprintf(", %d of them by a replay, %s", l.Replayed, order)
	}
	var skipped int64
	for _, m := range v.models {
		skipped += m.skipped
	}
	if skipped > 0 {
		verdict += fmt.Sprintf(", but for the %d that were to be skipped", skipped)
	}
	return verdict
}

// outcome is what a comparison came to, for people.
func outcome(wrong bool, disordered int64) string {
	switch {
	case wrong:
		return "DIFFERS"
	case disordered > 0:
		return fmt.Sprintf("equal, with %d rows out of order", disordered)
	}
	return "equal"
}

// countSkipped tells how many events each projection skipped.
func countSkipped(ctx context.Context, store *pgstore.Store) (map[string]int64, error) {
	rows, err := store.Engine().Projections(ctx, []string{projection.DefaultTenant})
	if err != nil {
		return nil, err
	}
	skipped := make(map[string]int64, len(rows))
	for _, row := range rows {
		skipped[row.ID.Name] = row.Skipped
	}
	return skipped, nil
}

// compareRows returns how many rows the table has, and how it differs from the count without the events that are left out,
// where some came late.
func compareRows(ctx context.Context, pool *pgxpool.Pool, events string, m readModel, left, late []int64) (n int64, wrong []string, err error) {
	if err := pool.QueryRow(ctx, "select count(*) from ("+m.got+") as got").Scan(&n); err != nil {
		return 0, nil, err
	}
	rows, err := pool.Query(ctx, `
		with out (position) as (select unnest($1::bigint[])),
		     counted as (select e.*, e.global_seq = any($2::bigint[]) as late from `+events+` e where not exists (select from out o where o.position = e.global_seq)),
		     want (key, value) as (`+m.want+`),
		     got (key, value) as (`+m.got+`)
		select key, coalesce(got.value, 'nothing'), coalesce(want.value, 'nothing')
		  from want full join got using (key)
		 where got.value is distinct from want.value
		 order by key`, append([]int64{}, left...), append([]int64{}, late...))
	if err != nil {
		return 0, nil, err
	}
	var key, got, want string
	_, err = pgx.ForEachRow(rows, []any{&key, &got, &want}, func() error {
		wrong = append(wrong, fmt.Sprintf("%s holds %s for %q, but the events say %s", m.name, got, key, want))
		return nil
	})
	return n, wrong, err
}

// shorten keeps the first few and says how many there are besides.
func shorten(wrong []string) []string {
	if len(wrong) <= shownDifferences {
		return wrong
	}
	return append(wrong[:shownDifferences:shownDifferences], fmt.Sprintf("and %d more like that", len(wrong)-shownDifferences))
}
