package engine

import "time"

// Held is what keeps the settled mark from moving.
type Held struct {
	// Below is the position that the mark is to reach.
	Below int64
	// Since is when the wait began.
	Since time.Time
	// Holders names the transactions that are waited for: "backend" and its pid, or "prepared transaction" and its virtual
	// transaction id. pg_locks has that id, and the transaction in pg_prepared_xacts.
	Holders []string
}
