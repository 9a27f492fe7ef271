package guard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestTextIsExaminedOnceInAProcess holds because an examined text costs no allocation.
func TestTextIsExaminedOnceInAProcess(t *testing.T) {
	const sql = "insert into totals (name, n) values ($1, 1) on conflict (name) do update set n = totals.n + 1"
	tx := New(nil)
	admit := func() {
		if err := tx.admit(sql); err != nil {
			t.Error(err)
		}
	}
	if n := testing.AllocsPerRun(10, func() { _ = refuse(sql) }); n == 0 {
		t.Fatal("examining a text allocates nothing, so this test notices nothing")
	}
	admit()
	tx = New(nil) // another transaction
	if n := testing.AllocsPerRun(10, admit); n > 0 {
		t.Errorf("a text that was admitted costs %v allocations", n)
	}
	for range 2 {
		if err := tx.admit("commit"); !errors.Is(err, ErrTxControl) {
			t.Errorf("got %v, want a refusal each time", err)
		}
	}
	tx.Close()
	if err := tx.admit(sql); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("got %v after the end of the loan", err)
	}
}

func TestFewTextsAreRemembered(t *testing.T) {
	tx := New(nil)
	long := "select '" + strings.Repeat("x", longestAdmitted) + "'"
	for i := range 3 * mostAdmitted {
		for _, sql := range []string{fmt.Sprint("select ", i), long} {
			if err := tx.admit(sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(admitted.set); n == 0 || n > mostAdmitted {
		t.Errorf("%d texts are remembered, want at most %d", n, mostAdmitted)
	}
	if admitted.has(long) {
		t.Error("a long text is remembered")
	}
	if err := tx.admit("select 1; commit"); !errors.Is(err, ErrTxControl) {
		t.Errorf("got %v, want a refusal", err)
	}
}
