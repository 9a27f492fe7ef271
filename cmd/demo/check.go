package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// shownDifferences is how many differences of a read model are printed.
const shownDifferences = 3

// checkResult is the result of a check.
type checkResult struct {
	events, streams int64
	models          []modelResult
	wrong           []string // empty if all read models are right
	lateReplay      bool     // failed events were replayed after later events of their streams
}

// modelResult is the result for one read model.
type modelResult struct {
	name, eventType string
	events          int64 // how many events the projection handles
	rows            int64
	deadLetters     deadLetterSummary
	skipped         int64
	reordered       int64 // rows that differ because replays came after later events of their streams
	wrong           bool
}

// check compares every read model with a plain SQL count over the events that are neither parked nor skipped. The
// parked, replayed and skipped events must be exactly those that the fault affects.
func check(ctx context.Context, d database, status admin.Status, f *fault) (checkResult, error) {
	v := checkResult{lateReplay: f.onError == projection.ActionPark && f.fixed.Load()}
	err := query(ctx, d, `with events as ({events}) select count(*), count(distinct stream) from events`, nil,
		[]any{&v.events, &v.streams}, func() {})
	if err != nil {
		return v, fmt.Errorf("count the events: %w", err)
	}
	for _, m := range readModels {
		c := modelResult{name: m.name, eventType: m.eventType}
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

// compare fills in the result, and returns what is wrong.
func (c *modelResult) compare(ctx context.Context, d database, m readModel, f *fault,
	lateReplay bool) (wrong []string, err error) {
	letters, err := deadLettersOf(ctx, d, m)
	if err != nil {
		return nil, err
	}
	c.deadLetters.add(letters)
	affected, err := f.affected(ctx, d, m)
	if err != nil {
		return nil, err
	}
	wrong = f.compareDeadLetters(m.name, letters, affected)
	if f.onError != projection.ActionSkip && c.skipped > 0 ||
		f.onError == projection.ActionSkip && c.skipped != int64(len(affected)) {
		wrong = append(wrong, fmt.Sprintf("%s skipped %d events; the fault affects %d",
			m.name, c.skipped, len(affected)))
	}
	missing, late := []int64{}, []int64{}
	for _, h := range affected {
		if lateReplay {
			late = append(late, h.position)
		} else if !f.fixed.Load() {
			missing = append(missing, h.position)
		}
	}
	err = query(ctx, d, `with events as ({events})
		select (select count(*) from (`+m.got+`) as got), (select count(*) from events where $1 = '' or type = $1)`,
		[]any{m.eventType}, []any{&c.rows, &c.events}, func() {})
	if err != nil {
		return nil, err
	}
	differing, err := compareRows(ctx, d, m, missing, late)
	if err != nil {
		return nil, err
	}
	wrong = append(wrong, shorten(differing)...)
	if len(late) > 0 {
		differing, err = compareRows(ctx, d, m, missing, []int64{})
		if err != nil {
			return nil, err
		}
		c.reordered = int64(len(differing))
	}
	return wrong, nil
}

// compareRows returns the differences between a read model and the count over the events. Events at the positions
// missing were not applied, those at late after all others.
func compareRows(ctx context.Context, d database, m readModel, missing, late []int64) (wrong []string, err error) {
	var key, got, want string
	err = query(ctx, d, `
		with events as ({events}),
		     counted as (select e.*, e.position in (select cast(value as bigint) from {elements $2}) as late
		                   from events e where e.position not in (select cast(value as bigint) from {elements $1})),
		     got (key, value) as (`+m.got+`),
		     want (key, value) as (`+m.want+`),
		     pairs (key, got, want) as (select key, value, null from got union all select key, null, value from want)
		select key, coalesce(max(got), 'nothing'), coalesce(max(want), 'nothing')
		  from pairs group by key having max(got) is distinct from max(want) order by key`, []any{asJSON(missing), asJSON(late)}, []any{&key, &got, &want}, func() {
		wrong = append(wrong, fmt.Sprintf("%s has %s for %q, but the events give %s", m.name, got, key, want))
	})
	return wrong, err
}

// shorten keeps the first few differences and the number of the others.
func shorten(wrong []string) []string {
	if len(wrong) <= shownDifferences {
		return wrong
	}
	return append(wrong[:shownDifferences:shownDifferences], fmt.Sprintf("and %d more", len(wrong)-shownDifferences))
}

// requireEvents adds an error if the store does not have this number of events.
func (v *checkResult) requireEvents(appended int64) {
	if v.events != appended {
		v.wrong = append(v.wrong, fmt.Sprintf("the store has %d events, but %d were appended", v.events, appended))
	}
}

// err returns nil if all read models are right.
func (v checkResult) err() error {
	if len(v.wrong) == 0 {
		return nil
	}
	return errors.New("not verified: " + strings.Join(v.wrong, "; "))
}

// deadLetters adds up the dead letters of all projections.
func (v checkResult) deadLetters() (sum deadLetterSummary) {
	for _, m := range v.models {
		sum.Parked += m.deadLetters.Parked
		sum.Behind += m.deadLetters.Behind
		sum.Replayed += m.deadLetters.Replayed
		sum.Left += m.deadLetters.Left
	}
	return sum
}

// lines returns the result as text for a terminal of at least 60 columns.
func (v checkResult) lines() []string {
	lines := []string{"read models compared with a plain SQL count over the events:", "",
		fmt.Sprintf("%-14s %8s %7s %7s %7s  %s", "projection", "events", "parked", "skipped", "rows", "result")}
	var notes []string
	for _, m := range v.models {
		result := "equal"
		switch {
		case m.wrong:
			result = "DIFFERS"
		case m.reordered > 0:
			result = "reordered"
			notes = append(notes,
				fmt.Sprintf("reordered: in %s, %d streams end with a replayed event although later events were applied before; -on-error park-stream keeps the order",
					m.name, m.reordered))
		}
		lines = append(lines, fmt.Sprintf("%-14s %8d %7d %7d %7d  %s",
			m.name, m.events, m.deadLetters.Left, m.skipped, m.rows, result))
		if m.eventType != "" {
			notes = append(notes, fmt.Sprintf("%s handles only events of type %s: %d of %d",
				m.name, m.eventType, m.events, v.events))
		}
	}
	if l := v.deadLetters(); l.Parked > 0 {
		notes = append(notes,
			fmt.Sprintf("%d events were parked: %d failed, %d follow a failed event of their stream; %d were replayed, %d are still parked",
				l.Parked, l.Parked-l.Behind, l.Behind, l.Replayed, l.Left))
	}
	lines = append(append(lines, ""), notes...)
	return append(append(lines, v.wrong...), v.conclusion())
}

// conclusion returns the result in one sentence.
func (v checkResult) conclusion() string {
	if len(v.wrong) > 0 {
		return "not verified"
	}
	text := "verified: every event was applied exactly once"
	var skipped int64
	for _, m := range v.models {
		skipped += m.skipped
	}
	l := v.deadLetters()
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
