package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/tenancy"
)

// codeClass classifies SQLite's primary result codes that a handler's statement may meet. Every other code is the
// handler's fault: its statement failed. Source: SQLite documentation, "Result and Error Codes".
var codeClass = map[int]faults.Class{
	sqlite3.SQLITE_BUSY:      faults.Infrastructure, // another process writes
	sqlite3.SQLITE_LOCKED:    faults.Infrastructure,
	sqlite3.SQLITE_CORRUPT:   faults.Configuration,
	sqlite3.SQLITE_NOTADB:    faults.Configuration,
	sqlite3.SQLITE_FULL:      faults.Unclear, // the disk, or an event that is too large for a limit
	sqlite3.SQLITE_IOERR:     faults.Unclear,
	sqlite3.SQLITE_CANTOPEN:  faults.Unclear, // also temporary files
	sqlite3.SQLITE_PROTOCOL:  faults.Unclear,
	sqlite3.SQLITE_NOMEM:     faults.Unclear,
	sqlite3.SQLITE_READONLY:  faults.Unclear,
	sqlite3.SQLITE_PERM:      faults.Unclear,
	sqlite3.SQLITE_INTERNAL:  faults.Unclear,
	sqlite3.SQLITE_NOLFS:     faults.Unclear,
	sqlite3.SQLITE_INTERRUPT: faults.Interrupted,
	sqlite3.SQLITE_SCHEMA:    faults.Interrupted, // the schema changed too often meanwhile
}

// missingObject are parts of the messages by which SQLite says that a statement needs an object that does not exist.
// They have no code of their own.
var missingObject = []string{
	"no such table", "no such column", "no such function", "no such index", "no such view", "no such trigger",
	"no such module", "has no column named",
}

// classOf returns the class of an error of SQLite.
func classOf(err *sqlite.Error) faults.Class {
	code := err.Code() & 0xff
	if class, ok := codeClass[code]; ok {
		return class
	}
	if code == sqlite3.SQLITE_ERROR {
		for _, part := range missingObject {
			if strings.Contains(err.Error(), part) {
				return faults.MissingObject
			}
		}
	}
	return faults.Handler
}

// classify returns the fault behind err, or nil for nil.
func classify(err error) *faults.Fault {
	return faults.Classify(err, func(fault *faults.Fault) bool {
		var failed *sqlite.Error
		switch {
		case errors.Is(err, ErrNotMigrated), errors.Is(err, ErrSchemaTooNew), errors.Is(err, ErrCorrupt),
			errors.Is(err, ErrForeignFile),
			errors.Is(err, ErrMoved), errors.Is(err, ErrReplaced), errors.Is(err, ErrForeignObject):
			fault.Class = faults.Configuration
		case errors.Is(err, ErrTxControl):
			fault.Class = faults.Handler
		case errors.As(err, &failed):
			fault.Class, fault.Err = classOf(failed), damaged(err)
			switch {
			case errors.Is(fault.Err, ErrMoved):
				fault.Class = faults.Configuration
			case fault.Class == faults.MissingObject:
				fault.Missing = ErrNotMigrated
			}
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
			fault.Class = faults.Unclear
		default:
			return false
		}
		return true
	})
}

var _ = usererror.RecognizeType[*sqlite.Error]()

// returnedClass returns the class of an error that a handler returned. Errors that are not SQLite's are the handler's
// own. An error may also come from another database, so it does not say that this file is damaged.
func returnedClass(err error) faults.Class {
	var failed *sqlite.Error
	switch {
	case errors.Is(err, tenancy.ErrArchived), errors.Is(err, tenancy.ErrDropping):
		return faults.MissingObject // an append of the handler's
	case errors.Is(err, ErrTxControl):
	case errors.As(err, &failed):
		return classOf(failed).OfHandler()
	}
	return faults.Handler
}

// storeFault classifies the error of a statement of the store.
func storeFault(err error) *faults.Fault { return classify(err).OfStore() }

// wrap adds what was being done to the error of a statement of the store. It returns nil if err is nil.
func wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), storeFault(err))
}
