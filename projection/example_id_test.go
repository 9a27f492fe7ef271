package projection_test

import (
	"fmt"

	"github.com/millrace-go/millrace/projection"
)

// Version 2 of a projection has a name of its own in the store, in logs and in commands.
func ExampleID() {
	id := projection.ID{Tenant: "acme", Name: projection.VersionName("totals", 2), Partition: 3}
	name, version := id.Version()
	fmt.Println(id, name, version)
	// Output:
	// acme/totals@2/3 totals 2
}
