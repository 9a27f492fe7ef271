// Package eventlog has the code for events that all stores share: it checks appends, reads in pages, and wakes readers
// in the same process.
package eventlog
