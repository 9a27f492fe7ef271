package observing

import (
	"reflect"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/observe"
)

func TestGuardedRecoversEveryCallbackAndLogsItOnce(t *testing.T) {
	var o observe.Observer
	calls := 0
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			calls++
			panic("on purpose")
		}))
	}
	core, logs := observer.New(zap.ErrorLevel)
	guarded := reflect.ValueOf(Guarded(o, zap.New(core)))
	for i := range guarded.NumField() {
		name := guarded.Type().Field(i).Name
		for range 3 {
			guarded.Field(i).Call([]reflect.Value{reflect.Zero(guarded.Field(i).Type().In(0))})
		}
		lines := logs.TakeAll()
		if len(lines) != 1 || lines[0].ContextMap()["callback"] != name ||
			lines[0].ContextMap()["panic"] != "on purpose" || calls != 3 {
			t.Errorf("%s: %d calls, logged %+v", name, calls, lines)
		}
		calls = 0
	}
	if none := Guarded(observe.Observer{}, zap.NewNop()); !reflect.ValueOf(none).IsZero() {
		t.Errorf("without callbacks: %+v", none)
	}
}
