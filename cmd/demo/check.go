package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

// shownDifferences is how many differences of a table are printed.
const shownDifferences = 3

// verdict is the result of a check. Everything is right where nothing is wrong.
type verdict struct {
	events, streams int64
	models          []checked
	wrong           []string
	lateReplay      bool // failed events were replayed after later events of their streams
}

// checked is one read model that was compared.
type checked struct {
	name, eventType string
	events          int64 // how many events the projection handles
	rows            int64
	letters         deadLetterSummary
	skipped         int64
	disordered      int64 // rows that would differ if each stream had been applied in order
	wrong           bool
}

// check compares every read model with a plain SQL count over the events, without those that are parked or skipped. Which
// events are parked, replayed or skipped must be exactly what the fault demands.
func check(ctx context.Context, d *program.Database, status millrace.Status, f *fault) (verdict, error) {
	v := verdict{lateReplay: f.onError == projection.ActionPark && f.fixed.Load()}
	err := d.Pool.QueryRow(ctx, "select count(*), count(distinct stream_id) from "+eventsOf(d)).Scan(&v.events, &v.streams)
	if err != nil {
		return v, fmt.Errorf("count the events: %w", err)
	}
	for _, m := range readModels {
		c := checked{name: m.name, eventType: m.eventType}
		for _, p := range status.Projections {
			if p.ID.Name == m.name {
				c.skipped = p.Skipped
			}
		}
		wrong, err := c.compare(ctx, d, m, f, v.lateReplay)
		if err != nil {
			return v, fmt.Errorf("check %s: %w", m.name, err)
		}
		c.wrong = len(wrong) > 0
		v.models = append(v.models, c)
		v.wrong = append(v.wrong, wrong...)
	}
	return v, nil
}

// compare fills in what is found of a read model, and returns what is wrong.
func (c *checked) compare(ctx context.Context, d *program.Database, m readModel, f *fault, lateReplay bool) (wrong []string, err error) {
	letters, err := deadLettersOf(ctx, d.Store, m)
	if err != nil {
		return nil, err
	}
	c.letters.add(letters)
	hits, err := f.hits(ctx, d, m)
	if err != nil {
		return nil, err
	}
	wrong = f.compareDeadLetters(m.name, letters, hits)
	if f.onError != projection.ActionSkip && c.skipped > 0 || f.onError == projection.ActionSkip && c.skipped != int64(len(hits)) {
		wrong = append(wrong, fmt.Sprintf("%s skipped %d events; the fault concerns %d", m.name, c.skipped, len(hits)))
	}
	missing, late := []int64{}, []int64{}
	for _, h := range hits {
		if lateReplay {
			late = append(late, h.position)
		} else if !f.fixed.Load() {
			missing = append(missing, h.position)
		}
	}
	err = d.Pool.QueryRow(ctx, `select (select count(*) from (`+m.got+`) as got),
		(select count(*) from `+eventsOf(d)+` where $1::text = '' or type = $1::text)`, m.eventType).Scan(&c.rows, &c.events)
	if err != nil {
		return nil, err
	}
	differing, err := compareRows(ctx, d, m, missing, late)
	if err != nil {
		return nil, err
	}
	wrong = append(wrong, shorten(differing)...)
	if len(late) > 0 {
		if differing, err = compareRows(ctx, d, m, missing, []int64{}); err != nil {
			return nil, err
		}
		c.disordered = int64(len(differing))
	}
	return wrong, nil
}

// compareRows lists how a table differs from the count over the events. Those at missing were not applied, those at late
// after all others.
func compareRows(ctx context.Context, d *program.Database, m readModel, missing, late []int64) (wrong []string, err error) {
	rows, err := d.Pool.Query(ctx, `
		with counted as (select e.*, e.global_seq = any($2::bigint[]) as late from `+eventsOf(d)+` e
		                  where not exists (select from unnest($1::bigint[]) as position where position = e.global_seq)),
		     want (key, value) as (`+m.want+`),
		     got (key, value) as (`+m.got+`)
		select key, coalesce(got.value, 'nothing'), coalesce(want.value, 'nothing')
		  from want full join got using (key)
		 where got.value is distinct from want.value
		 order by key`, missing, late)
	if err != nil {
		return nil, err
	}
	var key, got, want string
	_, err = pgx.ForEachRow(rows, []any{&key, &got, &want}, func() error {
		wrong = append(wrong, fmt.Sprintf("%s holds %s for %q, but the events say %s", m.name, got, key, want))
		return nil
	})
	return wrong, err
}

// shorten keeps the first few differences and says how many there are besides.
func shorten(wrong []string) []string {
	if len(wrong) <= shownDifferences {
		return wrong
	}
	return append(wrong[:shownDifferences:shownDifferences], fmt.Sprintf("and %d more like that", len(wrong)-shownDifferences))
}

// mustHold adds an error where the store does not hold exactly what was appended.
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

// letters adds up the dead letters of all projections.
func (v verdict) letters() (sum deadLetterSummary) {
	for _, m := range v.models {
		sum.Parked += m.letters.Parked
		sum.Behind += m.letters.Behind
		sum.Replayed += m.letters.Replayed
		sum.Left += m.letters.Left
	}
	return sum
}

// lines are the verdict for people, for a terminal of 60 columns or more.
func (v verdict) lines() []string {
	lines := []string{"read models, compared with a plain SQL count over the events:", "",
		fmt.Sprintf("%-14s %8s %7s %7s %7s  %s", "projection", "events", "parked", "skipped", "rows", "result")}
	var notes []string
	for _, m := range v.models {
		result := "equal"
		switch {
		case m.wrong:
			result = "DIFFERS"
		case m.disordered > 0:
			result = "reordered"
			notes = append(notes, fmt.Sprintf("%d rows of %s show the replayed event as the last, though later events had been applied: -on-error park-stream keeps the order",
				m.disordered, m.name))
		}
		lines = append(lines, fmt.Sprintf("%-14s %8d %7d %7d %7d  %s", m.name, m.events, m.letters.Left, m.skipped, m.rows, result))
		if m.eventType != "" {
			notes = append(notes, fmt.Sprintf("%s takes only events of type %s: %d of %d", m.name, m.eventType, m.events, v.events))
		}
	}
	if l := v.letters(); l.Parked > 0 {
		notes = append(notes, fmt.Sprintf("%d events were parked: %d failed, %d followed one that did; %d replayed, %d still parked",
			l.Parked, l.Parked-l.Behind, l.Behind, l.Replayed, l.Left))
	}
	lines = append(append(lines, ""), notes...)
	return append(append(lines, v.wrong...), v.sentence())
}

// sentence is the verdict in one sentence.
func (v verdict) sentence() string {
	if len(v.wrong) > 0 {
		return "not verified"
	}
	text := "verified: every event was applied exactly once"
	var skipped int64
	for _, m := range v.models {
		skipped += m.skipped
	}
	l := v.letters()
	switch {
	case l.Left > 0:
		text += fmt.Sprintf(", except the %d that are parked", l.Left)
	case skipped > 0:
		text += fmt.Sprintf(", except the %d that were skipped", skipped)
	case l.Replayed > 0 && v.lateReplay:
		text += fmt.Sprintf(", %d of them by a replay, after later events of their streams", l.Replayed)
	case l.Replayed > 0:
		text += fmt.Sprintf(", %d of them by a replay, each stream in order", l.Replayed)
	}
	return text
}
