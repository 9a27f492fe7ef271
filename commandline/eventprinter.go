package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/eventfile"
)

// eventPrinter prints events of a tenant, each in one line. An event that cannot be read or upcast has a line that says
// why.
type eventPrinter struct {
	cli *cli
	// unreadable is how many events could not be read or upcast, and first the position of the first of them.
	unreadable, first int64
}

func (p *eventPrinter) print(tenant string, e event.Envelope) error {
	if e.Unreadable == nil {
		if p.cli.json {
			return p.cli.printJSON(eventOf(tenant, e))
		}
		return p.line(e, compact(e.Body))
	}
	p.unreadable++
	if p.first == 0 {
		p.first = e.Position
	}
	reason := reasonOf(e.Unreadable)
	if p.cli.json {
		return p.cli.printJSON(struct {
			Unreadable eventfile.Unreadable `json:"unreadable"`
		}{eventfile.Unreadable{Tenant: tenant, Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type,
			Time:   e.Time.UTC(),
			Reason: reason, Body: e.Body}})
	}
	if len(e.Body) > 0 {
		return p.line(e, reason+"; the body as stored: "+compact(e.Body))
	}
	return p.line(e, "the body cannot be read: "+reason)
}

func (p *eventPrinter) line(e event.Envelope, body string) error {
	at := e.Time.UTC().Format("2006-01-02 15:04:05.000")
	version := number(e.Version)
	if e.Part > 0 {
		version += "." + number(e.Part)
	}
	_, err := fmt.Fprintln(p.cli.out,
		console.OneLine(fmt.Sprintf("%8d  %s  %s@%s  %s  %s", e.Position, at, e.Stream, version, e.Type, body)))
	return err
}

// incomplete returns an error if an event could not be read.
func (p *eventPrinter) incomplete(tenant string) error {
	if p.unreadable == 0 {
		return nil
	}
	return fmt.Errorf("%s of tenant %q cannot be read, the first at position %d", plural(p.unreadable, "event"), tenant,
		p.first)
}

// reasonOf returns why an event cannot be read or upcast.
func reasonOf(unreadable error) string {
	var of *event.UnreadableError
	if errors.As(unreadable, &of) {
		return of.Err.Error()
	}
	var failed *event.DecodeError
	if errors.As(unreadable, &failed) {
		return failed.Error()
	}
	return unreadable.Error()
}

// compact returns JSON without white space between its parts.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
