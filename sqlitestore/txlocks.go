package sqlitestore

import (
	"database/sql"
	"sync"
)

// txLocks lets one append of a transaction run at a time. The savepoints of appends that run at once would be nested,
// and one append would undo another.
type txLocks struct {
	mu   sync.Mutex
	held map[*sql.Tx]*txLock
}

// txLock is the lock of one transaction. users are the appends that have it or wait for it.
type txLock struct {
	sync.Mutex
	users int
}

// lock waits for the lock of a transaction. unlock must follow.
func (l *txLocks) lock(tx *sql.Tx) (unlock func()) {
	l.mu.Lock()
	lock := l.held[tx]
	if lock == nil {
		if l.held == nil {
			l.held = make(map[*sql.Tx]*txLock)
		}
		lock = &txLock{}
		l.held[tx] = lock
	}
	lock.users++
	l.mu.Unlock()
	lock.Lock()
	return func() {
		lock.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		lock.users--
		if lock.users == 0 {
			delete(l.held, tx)
		}
	}
}
