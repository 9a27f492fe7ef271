package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

func stored(positions ...int64) (list events) {
	for _, p := range positions {
		list = append(list, event.Envelope{Position: p, Time: time.Unix(p, 0)})
	}
	return list
}

func TestOldestIsTheFirstEventAfterThePosition(t *testing.T) {
	known := time.Unix(99, 0)
	for name, test := range map[string]struct {
		position int64
		buffer   events
		tail     *Tail
		want     time.Time
	}{
		"in the buffer":              {1, stored(2, 3), &Tail{Mark: 9, Events: stored(8)}, time.Unix(2, 0)},
		"in the tail":                {1, nil, &Tail{Mark: 9, From: 1, Events: stored(1, 2, 3)}, time.Unix(2, 0)},
		"the last one of the tail":   {8, nil, &Tail{Mark: 9, Events: stored(8, 9)}, time.Unix(9, 0)},
		"not in memory":              {1, nil, &Tail{Mark: 9, From: 2, Events: stored(3)}, known},
		"none of the tail":           {8, nil, &Tail{Mark: 9, Events: stored(7, 8)}, known},
		"no tail":                    {1, nil, nil, known},
		"at the mark":                {9, nil, &Tail{Mark: 9, Events: stored(9)}, time.Time{}},
		"at the mark, with a buffer": {9, stored(9), &Tail{Mark: 9}, time.Time{}},
	} {
		m := &Machine{
			Position: test.position, Buffer: Buffer{Events: test.buffer}, Tail: test.tail, State: AwaitingTail{},
		}
		m.Sent.Status = Status{Mark: 9, Oldest: known}
		if got := m.status().Oldest; !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestOnlyWaitsAfterFaultsThatCountNothingAreFaulty(t *testing.T) {
	for name, test := range map[string]struct {
		state State
		want  bool
	}{
		"for the server":        {AtGate{}, true},
		"after a fault":         {FaultWait{Reason: errors.New("")}, true},
		"after an unclear one":  {EventWait{Reason: errors.New("")}, true},
		"for an attempt":        {RetryWait{}, false},
		"at rest":               {Idle{}, false},
		"a command meanwhile":   {Working{Job: Command{}, Back: EventWait{Reason: errors.New("")}}, true},
		"a command in any case": {Working{Job: Command{}, Back: RetryWait{}}, false},
	} {
		m := &Machine{State: test.state}
		if got := m.faulty(Waiting); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if m.faulty(Live) {
			t.Errorf("%s: a projection that does not wait is faulty", name)
		}
	}
}
