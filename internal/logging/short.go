package logging

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/usererror"
)

// longestError is how many bytes of an error's text are logged. The text of a handler's error may be of any length.
const longestError = 1000

// Short returns a logger that cuts the texts of errors, and that survives what its core, or an error of the user, does.
func Short(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return shortCore{core} }))
}

type shortCore struct{ zapcore.Core }

// With cuts the fields that all entries have.
func (c shortCore) With(fields []zapcore.Field) zapcore.Core {
	return shortCore{c.Core.With(cutErrors(fields))}
}

// Check lets the core below decide which entries are written, and where.
func (c shortCore) Check(entry zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if below := c.Core.Check(entry, nil); below != nil {
		return to.AddCore(entry, shortEntry{c.Core, below})
	}
	return to
}

// shortEntry is an entry that the core below has admitted.
type shortEntry struct {
	zapcore.Core
	below *zapcore.CheckedEntry
}

func (e shortEntry) Write(entry zapcore.Entry, fields []zapcore.Field) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the logger panicked: %s", usererror.PanicText(r))
		}
	}()
	e.below.Entry = entry // now with the caller
	e.below.Write(cutErrors(fields)...)
	return nil
}

// cutErrors returns fields with the long errors cut, and the users' own errors in place of what the library made of
// them; fields itself is left as it is.
func cutErrors(fields []zapcore.Field) []zapcore.Field {
	var short []zapcore.Field
	for i, field := range fields {
		err, ok := field.Interface.(error)
		if field.Type != zapcore.ErrorType || !ok {
			continue
		}
		if short == nil {
			short = append(short, fields...)
		}
		switch text := usererror.Text(err); {
		case len(text) > longestError:
			short[i] = zap.String(field.Key, excerpt.UpTo(text, longestError))
		case !usererror.Bad(err):
			short[i].Interface = usercode.Open(err)
		}
	}
	if short == nil {
		return fields
	}
	return short
}
