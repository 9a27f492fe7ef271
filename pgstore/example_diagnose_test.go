package pgstore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace-go/millrace/pgstore"
)

// A deployment is examined before it starts. Here the schema was not migrated. Each finding says what to do.
func ExampleDiagnose() {
	ctx := context.Background()
	findings, err := pgstore.Diagnose(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_diagnose"},
		pgstore.DiagnoseOptions{})
	for _, f := range findings {
		if f.Check == "schema" {
			fmt.Println(f.Problem)
			fmt.Println(f.Advice)
		}
	}
	fmt.Println(err)
	// Output:
	// the control schema "example_diagnose" does not exist
	// run millrace migrate up, or call Migrate, as the role that owns the schemas
	// <nil>
}
