package sqlitestore

import (
	"context"
	"database/sql/driver"
	"reflect"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"
)

// interrupter interrupts the running statement of a connection when a context ends. The driver does so only for the context
// of a statement, and only until its first row.
type interrupter struct {
	mu sync.Mutex
	// handle is SQLite's connection, 0 if it is closed.
	handle uintptr
	// watched identifies the context that is watched, and stop ends that.
	watched *context.Context
	stop    func() bool
}

// open finds the handle, which the driver does not export.
func (i *interrupter) open(base driver.Conn) {
	i.handle = uintptr(reflect.ValueOf(base).Elem().FieldByName("db").Uint())
}

func (i *interrupter) watch(ctx context.Context) {
	i.unwatch()
	if ctx.Done() == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = &ctx
	i.stop = context.AfterFunc(ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.watched == &ctx && i.handle != 0 {
			sqlite3.Xsqlite3_interrupt(nil, i.handle)
		}
	})
}

func (i *interrupter) unwatch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil {
		i.stop()
	}
	i.watched, i.stop = nil, nil
}

func (i *interrupter) close() {
	i.unwatch()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handle = 0
}
