package observe_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/observe"
)

// counting returns an Observer each of whose callbacks adds its name and the suffix to calls.
func counting(calls *[]string, suffix string) (o observe.Observer) {
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			*calls = append(*calls, name+suffix)
			return nil
		}))
	}
	return o
}

func call(o observe.Observer, i int) (name string) {
	v := reflect.ValueOf(o)
	f := v.Field(i)
	f.Call([]reflect.Value{reflect.Zero(f.Type().In(0))})
	return v.Type().Field(i).Name
}

func TestJoinCallsEveryCallbackOfEachObserverInOrder(t *testing.T) {
	var calls []string
	a, b := counting(&calls, " a"), counting(&calls, " b")
	for want, o := range map[string]observe.Observer{"ab": observe.Join(a, observe.Observer{}, b),
		"b": observe.Join(observe.Observer{}, b)} {
		for i := range reflect.TypeFor[observe.Observer]().NumField() {
			calls = nil
			name := call(o, i)
			var all []string
			for _, suffix := range want {
				all = append(all, name+" "+string(suffix))
			}
			if !slices.Equal(calls, all) {
				t.Errorf("%s called %q, want %q", name, calls, all)
			}
		}
	}
}

func TestJoinOfNoCallbacksIsTheZeroValue(t *testing.T) {
	if joined := observe.Join(observe.Observer{}, observe.Observer{}); !reflect.ValueOf(joined).IsZero() {
		t.Errorf("%+v", joined)
	}
}
