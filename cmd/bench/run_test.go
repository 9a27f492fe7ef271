package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// events returns an event at a position.
func events(position string) []event.Envelope {
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		panic(err)
	}
	return []event.Envelope{{Position: n}}
}

// smokeLimit only bounds a run that hangs.
const smokeLimit = 3 * time.Minute

// TestEveryScenarioRuns runs all scenarios with tiny sizes. Each verifies what it measures.
func TestEveryScenarioRuns(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), smokeLimit)
			defer cancel()
			var out strings.Builder
			if err := run(ctx, tiny(dsn, s.name), &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			cases := s.cases(tinySizes())
			if got := strings.Count(out.String(), "\n"+s.name+"\n"); got != len(cases) {
				t.Errorf("%d tables, want %d:\n%s", got, len(cases), out.String())
			}
			goals := 0
			for _, c := range cases {
				goals += len(c.goals)
				if !strings.Contains(out.String(), "\n"+c.name+"  ") {
					t.Errorf("there is no table %q:\n%s", c.name, out.String())
				}
			}
			if got := strings.Count(out.String(), "\ngoal "); got != goals {
				t.Errorf("%d goals, want %d:\n%s", got, goals, out.String())
			}
		})
	}
	if left(t, pool) {
		t.Error("the database is left")
	}
}

// falsify makes the tables of the handlers hold more than the handlers write.
const falsify = `create function bench.falsify() returns trigger language plpgsql as $$ begin new.n := new.n + 1; return new; end $$;
	create trigger falsify before insert on bench.counts for each row execute function bench.falsify();
	create trigger falsify before insert on bench.totals for each row execute function bench.falsify();
	create trigger falsify before insert on bench.applied for each row execute function bench.falsify()`

// TestWrongCountIsAnError changes what each contender writes.
func TestWrongCountIsAnError(t *testing.T) {
	dsn := pgtest.Database(t)
	for _, name := range []string{"catchup", "live", "wide", "fanout", "partitions", "flood", "peers"} {
		for _, s := range scenarios {
			if s.name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), smokeLimit)
				defer cancel()
				c := s.cases(tinySizes())[0]
				e, err := newEnv(ctx, dsn, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := e.close(ctx); err != nil {
						t.Error(err)
					}
				}()
				contenders, err := c.prepare(ctx, e)
				if err != nil {
					t.Fatal(err)
				}
				program.MustExec(t, e.Pool, falsify)
				for _, one := range contenders {
					if _, err := runOne(ctx, one, 0); err == nil || !strings.Contains(err.Error(), "not verified: ") {
						t.Errorf("%s: got %v, want a verification that failed", one.name, err)
					}
				}
			})
		}
	}
}
