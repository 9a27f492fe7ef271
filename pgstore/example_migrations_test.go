package pgstore_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/millrace-go/millrace/pgstore"
)

// The SQL of all migrations is for other tools. Each text is one transaction, and refuses to run at any other version.
func ExampleControlMigrations() {
	control, err := pgstore.ControlMigrations("millrace", 0)
	if err != nil {
		log.Panic(err)
	}
	tenant, err := pgstore.TenantMigrations("millrace", "default", 0)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(strings.Contains(control, `create table "millrace".leases`),
		strings.Contains(tenant, `create table "millrace_default".events`))
	// Output:
	// true true
}
