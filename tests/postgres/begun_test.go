package postgres_test

import (
	"testing"
)

// Of batches that wait for their slots, only the first ones begin by a message of their own. Some more do so on a
// machine that is so busy that others end before they wait.
func TestBatchesThatWaitAreBegunByTheEndsOfOthers(t *testing.T) {
	t.Parallel()
	const n = 100
	c := (&statementCounts{}).setup(t)
	c.Append("a", 1)
	c.Start(c.runtime(hourly, c.named(n)...))
	c.at(n, 1)
	c.settle()
	c.tap.forget()
	c.Append("a", 1)
	c.at(n, 2)
	// On a busy machine a slot that was promised may come too late. The batch then begins once more.
	const late = n / 10
	if begun, alone := c.times("begin_batch"),
		c.times("select pg_advisory_xact_lock_shared(?, ?), millrace.check_lease(?, ?, ?, ?)"); begun < n ||
		begun > n+late || alone > n/2 {
		t.Errorf("%d batches began, %d of them by messages of their own", begun, alone)
	}
}
