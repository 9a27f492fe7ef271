package commandline_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/commandline"
	"github.com/millrace-go/millrace/eventtype"
)

type OrderPlaced struct {
	Cents int64 `json:"cents"`
}

func (OrderPlaced) EventType() string { return "OrderPlaced.v2" }

type OrderPlacedV1 struct {
	Euros int64 `json:"euros"`
}

func (OrderPlacedV1) EventType() string { return "OrderPlaced" }

// A program is the command line of its operators. It knows the event types of the program.
func Example() {
	types, err := eventtype.New(eventtype.Upcast(func(old OrderPlacedV1) (OrderPlaced, error) {
		return OrderPlaced{Cents: 100 * old.Euros}, nil
	}))
	if err != nil {
		log.Panic(err)
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(dir)
	millrace := func(args ...string) { // the arguments are those of the process, os.Args[1:]
		args = append(args, "--file", filepath.Join(dir, "shop.db"))
		if status := commandline.Main(args, commandline.Options{Types: types}); status != 0 {
			fmt.Println("status", status)
		}
	}
	millrace("migrate", "up")
	millrace("events", "append", "order-17", "OrderPlaced", `{"euros": 12}`)
	millrace("events", "append", "order-18", "OrderPlaced.v2", `{"euros": 12}`) // its error is written to os.Stderr
	millrace("events", "count", "--type", "OrderPlaced.v2")
	// Output:
	// the store and 1 tenant are at the version of this program
	// appended: position 1, version 1 of order-17
	// status 2
	// 1
}
