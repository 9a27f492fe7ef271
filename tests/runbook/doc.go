// Package runbook acts out docs/runbook.md. For each entry of the page, a scenario brings about the symptom on a real
// store with real nodes. Then it runs the commands of the entry as they stand on the page, compares what they print
// with the page, and checks that the symptom is gone.
package runbook
