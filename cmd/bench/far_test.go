package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	far.close()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection outlives its network")
	}
}

func TestScenariosRunFarFromTheServer(t *testing.T) {
	o := tiny(pgtest.Database(t), "append")
	o.roundTrip = 2 * time.Millisecond
	var out strings.Builder
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
