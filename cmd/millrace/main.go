// Command millrace observes and changes the projections, tenants, dead letters and events of a store, from any process
// that has access to it. It is package commandline without a registry of event types.
package main

import (
	"os"

	"github.com/millrace-go/millrace/commandline"
)

func main() { os.Exit(commandline.Main(os.Args[1:], commandline.Options{})) }
