// Package eventlog has what every store does alike with events: it checks appends, reads in pages, and wakes what waits for
// events in the same process.
package eventlog
