package sqlitestore

import (
	"context"
	"database/sql"
	"sync"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
)

// keptNotices is the number of notices that the table keeps. The owner of the file reads them within noticeInterval. If
// it was frozen, it may miss some, and finds what they announced when it reads its leases.
const keptNotices = 10_000

// announce sends a notice about leases to the node that owns the file, in this process or another, when the transaction
// commits.
func (db *database) announce(ctx context.Context, tx *sql.Tx, n engine.Notice) error {
	return db.on(ctx, tx).run(func(tx store.Tx) error {
		tx.Notify(n)
		return nil
	})
}

// sessions are the sessions of this process with the file.
type sessions struct {
	mu   sync.Mutex
	open map[*nodeSession]bool
	// announced reports that the transaction of the writer has announced something. It belongs to the holder of the
	// writer's turn.
	announced bool
}

func (s *sessions) add(session *nodeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*nodeSession]bool)
	}
	s.open[session] = true
}

func (s *sessions) remove(session *nodeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, session)
}

// wake makes the sessions read their notices at once.
func (s *sessions) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.open {
		select {
		case session.woken <- struct{}{}:
		default:
		}
	}
}

// noticesAfter returns the notices after a number, and the number of the last one.
func noticesAfter(ctx context.Context, q querier,
	number int64) (notices []engine.Notice, last int64, err error) {
	n := engine.Notice{Control: true}
	last = number
	err = each(ctx, q, "new_notices", []any{number},
		[]any{&last, &n.Tenant, &n.Row, &n.Commanded, &n.Nodes, &n.Operations}, func() error {
			notices = append(notices, n)
			return nil
		})
	return notices, last, err
}
