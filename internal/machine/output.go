package machine

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/internal/engine/faults"
)

// output has the effects of a step, in order.
type output struct{ effects []Effect }

func (o *output) do(e Effect) { o.effects = append(o.effects, e) }

func (o *output) log(level zapcore.Level, message string, fields ...zap.Field) {
	o.do(Log{Level: level, Message: message, Fields: fields})
}

// report logs a line about an event that an observer gets too.
func (o *output) report(event any, level zapcore.Level, message string, fields ...zap.Field) {
	o.do(Log{Level: level, Message: message, Fields: fields, Event: event})
}

// logRetry logs a fault that is not counted, and how many there were in a row.
func (o *output) logRetry(f *faults.Fault, inARow int, more ...zap.Field) {
	o.log(zap.WarnLevel, "fault not counted, retrying", append(more, zap.Stringer("class", f.Class),
		zap.Int("attempt", inARow), zap.Error(f.Err))...)
}
