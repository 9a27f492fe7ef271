package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestRoundTripsTakeLonger(t *testing.T) {
	const roundTrip = 30 * time.Millisecond
	far, dsn, err := farFrom(t.Context(), pgtest.Database(t), roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	large := strings.Repeat("x", 1<<20)
	for range 3 {
		began, back := time.Now(), ""
		if err := conn.QueryRow(t.Context(), "select $1", large).Scan(&back); err != nil || back != large {
			t.Fatalf("%d bytes of %d came back: %v", len(back), len(large), err)
		}
		if took := time.Since(began); took < roundTrip {
			t.Errorf("a round trip took %v, want at least %v", took, roundTrip)
		}
	}
	if err := far.close(); err != nil {
		t.Error(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection outlives the proxy")
	}
}

// TestLastMessageOfTheServerArrives connects to a database that does not exist: the server says so, and ends the
// connection.
func TestLastMessageOfTheServerArrives(t *testing.T) {
	far, dsn, err := farFrom(t.Context(), pgtest.Database(t), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer far.close()
	dsn, err = pgtest.WithDatabase(dsn, "does_not_exist")
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgx.Connect(t.Context(), dsn)
	var says *pgconn.PgError
	if !errors.As(err, &says) || says.Code != "3D000" {
		t.Errorf("it fails with %v, want SQLSTATE 3D000", err)
	}
}

func TestFiguresAreThoseOfAServerFarAway(t *testing.T) {
	o := tiny(pgtest.Database(t), "append")
	o.json, o.roundTrip, o.sizes.writers = true, 20*time.Millisecond, []int{1}
	var out strings.Builder
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	var got line
	if err := json.Unmarshal([]byte(first), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	// One writer appends at most once in a round trip.
	if got.RoundTrip != o.roundTrip || !strings.HasPrefix(got.Case, "1 writer") || *got.Metrics[0].Median > 50 {
		t.Errorf("the first line is %s", first)
	}
	if len(got.Goals) > 0 {
		t.Errorf("goals for a server of the same machine are judged: %s", first)
	}
}
