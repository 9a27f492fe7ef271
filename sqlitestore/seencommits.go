package sqlitestore

import (
	"context"
	"database/sql"
	"time"
)

const (
	// headsShare is the ratio of the pause before a reading of the heads to the duration of the last reading. With many
	// tenants the heads are read less often, so that they take at most a twentieth of a processor.
	headsShare = 20
	// headTime is the longest time that counts for the head of one tenant, some ten times what it takes.
	headTime = 20 * time.Microsecond
)

// headsPause returns the pause after a reading that took so long for that many tenants. On a busy machine, a reading
// mostly waits for a processor, and few tenants would be read every few seconds only.
func headsPause(took time.Duration, tenants int) time.Duration {
	return headsShare * min(took, time.Duration(tenants)*headTime)
}

// seenCommits is what a session has seen of the commits of other connections, including those of this process.
type seenCommits struct {
	// version is the number of data_version on that connection. A connection whose statement is interrupted is
	// replaced.
	version    int64
	connection any
	// notices and heads report whether there may be notices, and heads, that the session has not read.
	notices, heads bool
	// tenants are the heads as they were read last. They are read again after that time.
	tenants map[string]int64
	after   time.Time
}

// begin marks all commits so far as seen.
func (c *seenCommits) begin(ctx context.Context, db *sql.DB) error {
	if err := c.poll(ctx, db); err != nil {
		return err
	}
	_, err := c.risen(ctx, db)
	return err
}

// poll finds out whether another connection has committed since the last call.
func (c *seenCommits) poll(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var connection any
	if err := conn.Raw(func(driver any) error { connection = driver; return nil }); err != nil {
		return err
	}
	version, err := number(ctx, conn, "data_version")
	if err == nil && (version != c.version || connection != c.connection) {
		c.version, c.connection, c.notices, c.heads = version, connection, true, true
	}
	return err
}

// risen returns the tenants whose heads have risen since the last reading, and those that are new.
func (c *seenCommits) risen(ctx context.Context, db *sql.DB) (risen []string, err error) {
	began := time.Now()
	if !c.heads || began.Before(c.after) {
		return nil, nil
	}
	heads := make(map[string]int64, len(c.tenants))
	var tenant string
	var head int64
	err = each(ctx, db, "all_heads", nil, []any{&tenant, &head}, func() error {
		heads[tenant] = head
		if head > c.tenants[tenant] {
			risen = append(risen, tenant)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c.tenants, c.heads, c.after = heads, false, now.Add(headsPause(now.Sub(began), len(heads)))
	return risen, nil
}
