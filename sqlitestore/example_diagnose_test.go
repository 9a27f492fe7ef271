package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/sqlitestore"
)

// A store is examined, before and after its file was damaged.
func ExampleDiagnose() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "events.db"), sqlitestore.Options{})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	file := filepath.Join(folder, "events.db")
	findings, err := sqlitestore.Diagnose(ctx, file, sqlitestore.Options{})
	fmt.Println(len(findings), "findings", err)

	store.Close()
	content, err := os.ReadFile(file)
	check(err)
	check(os.WriteFile(file, append(make([]byte, 16), content[16:]...), 0o600))
	findings, err = sqlitestore.Diagnose(ctx, file, sqlitestore.Options{})
	for _, f := range findings {
		fmt.Println(f.Check+":", f.Advice)
	}
	fmt.Println(err)
	// Output:
	// 0 findings <nil>
	// file: use another file
	// <nil>
}
