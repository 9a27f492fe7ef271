package sqlitestore

import (
	"context"
	"database/sql/driver"
	"reflect"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// interruptInterval is the pause between two interrupts. A statement that begins at the moment of an interrupt is not
// interrupted by it.
const interruptInterval = 10 * time.Millisecond

// interrupter interrupts the statements of a connection after a context has ended, until unwatch. The driver does so
// only for the context of a statement, only until its first row, and only once.
type interrupter struct {
	mu sync.Mutex
	// handle is SQLite's connection, 0 if it is closed.
	handle uintptr
	// watched identifies the context that is watched. stop ends the watch.
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
	i.stop = context.AfterFunc(ctx, func() { i.interrupt(&ctx) })
}

// interrupt interrupts the running statement, and does so again until the context is not watched any more.
func (i *interrupter) interrupt(watched *context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watched == watched && i.handle != 0 {
		sqlite3.Xsqlite3_interrupt(nil, i.handle)
		time.AfterFunc(interruptInterval, func() { i.interrupt(watched) })
	}
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
