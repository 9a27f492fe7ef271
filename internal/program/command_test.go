package program

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/pgtest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func TestFlagsMayHaveOneDash(t *testing.T) {
	got := doubleDashes([]string{"-events", "5", "--json", "node", "-rate=-1", "-h", "-5", "--", "-x1"})
	want := []string{"--events", "5", "--json", "node", "--rate=-1", "-h", "-5", "--", "-x1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorIsOneLine(t *testing.T) {
	var out, errs bytes.Buffer
	reason := errors.Join(errors.New("first"), errors.New("second\tpart"))
	cmd := &cobra.Command{Use: "mill", RunE: func(*cobra.Command, []string) error { return reason }}
	if err := Execute(t.Context(), cmd, nil, &out, &errs); !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}
	if got, want := errs.String(), "mill: first; second; part\n"; got != want || out.Len() > 0 {
		t.Errorf("printed %q and %q, want %q as an error", out.String(), got, want)
	}
}

func TestDatabaseIsThatOfTheFlagOrOfTheEnvironment(t *testing.T) {
	t.Setenv("DATABASE_URL", "environment")
	for want, args := range map[string][]string{"environment": nil, "flag": {"-database-url", "flag"},
		"": {"-database-url="}} {
		var given, got string
		cmd := &cobra.Command{Use: "mill", Run: func(cmd *cobra.Command, _ []string) { got = DatabaseURL(cmd, given) }}
		cmd.Flags().StringVar(&given, "database-url", "", "")
		if err := Execute(t.Context(), cmd, args, &bytes.Buffer{}, &bytes.Buffer{}); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", args, got, err, want)
		}
	}
}
