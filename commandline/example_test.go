package commandline_test

import (
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/commandline"
)

// A program is its own command line.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "shop.db")
	for _, args := range [][]string{
		{"migrate", "up", "--file", file},
		{"events", "append", "order-17", "OrderPlaced", `{"amount": 12}`, "--file", file},
	} {
		if status := commandline.Main(args); status != 0 {
			log.Panic(status)
		}
	}
	// Output:
	// the store and 1 tenant are at the version of this program
	// appended: position 1, version 1 of order-17
}
