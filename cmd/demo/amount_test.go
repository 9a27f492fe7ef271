package main

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventfile"
)

func TestAmountsAreExactOrRefused(t *testing.T) {
	t.Parallel()
	for decimal, want := range map[string]int64{
		"0": 0, "26.85": 2685, "26.8": 2680, "26": 2600, "-0.01": -1, "-7": -700, "0.29": 29, "1.10": 110,
		"9999999999999.99": 999999999999999, "-9999999999999.99": -999999999999999,
	} {
		if n, err := cents(decimal); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", decimal, n, err, want)
		}
	}
	for _, decimal := range []string{"1.005", "1.000", "1e2", "1.5e1", `"1"`, "10000000000000", "-10000000000000",
		"99999999999999999999", "true", "{}", "[1.5]"} {
		if n, err := cents(decimal); err == nil {
			t.Errorf("%q: %d, want an error", decimal, n)
		}
	}
}

// oddBodies are bodies that readers of JSON treat differently, of payments of 3.29 in all.
var oddBodies = []string{
	`{"amount": 1.10, "role": "A"}`, `{"amount": 2.2, "role": null}`, `{"amount": null}`, `{"Amount": 5, "ROLE": "B"}`,
	`{"role": 7}`,
	`{"amount": -0.01, "role": {"a": 1}}`, `{"role": "tab\t\"quote\" é"}`, `[1]`, `"text"`, `null`, `7`,
	`{"amount": 9999999999999.99}`,
	`{"amount": -9999999999999.99}`, `{"role": ""}`,
}

func TestHandlersAgreeWithTheCountOnOddBodies(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		d, err := p.create(p.t.Context(), 1, zap.NewNop())
		if err != nil {
			p.t.Fatal(err)
		}
		defer d.Close()
		for i, body := range oddBodies {
			// The stream and another type need care in SQL and in JSON.
			stream, other := fmt.Sprintf("it's \"%d\" \\ %%", i%3),
				event.Event{Type: "O'Brien, \"x\"", Body: []byte(body)}
			if _, err := d.Append(p.t.Context(), stream, event.Any, event.Event{Type: paid, Body: []byte(body)},
				other); err != nil {
				p.t.Fatal(err)
			}
		}
		runtime, err := newRuntime(d, millrace.Config{}, new(fault))
		if err == nil {
			_, err = runtime.RunUntilIdle(p.t.Context())
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.check(new(fault)).err(); err != nil {
			p.t.Error(err)
		}
		if got := p.counts("select 'cents', cents from {schema}.payments"); got["cents"] != 329 {
			p.t.Errorf("the payments have %v, want 329", got)
		}
		if got := p.counts("select role, n from {schema}.events_by_role"); got["(none)"] != int64(2*len(oddBodies)-6) ||
			got[""] != 2 {
			p.t.Errorf("the roles have %v", got)
		}
	})
}

func TestInputRefusesInexactAmounts(t *testing.T) {
	t.Parallel()
	line := func(eventType, amount string) string {
		return fmt.Sprintf(`{"stream":"a","type":%q,"data":{"amount":%s}}`+"\n", eventType, amount)
	}
	for _, err := range claimsIn(eventfile.Read(strings.NewReader(line("T", "1.005") + line(paid, "1.05")))) {
		if err != nil {
			t.Error(err)
		}
	}
	var found error
	for _, err := range claimsIn(eventfile.Read(strings.NewReader(line(paid, "1.05") + line(paid, "1.005")))) {
		found = err
	}
	want := "line 2: data of a payment: amount \"1.005\": must be a number below 10,000,000,000,000 with at most two decimals"
	if found == nil || found.Error() != want {
		t.Errorf("%v, want %s", found, want)
	}
}
