package machine

import (
	"flag"
	"math/rand"
	"testing"
	"time"
)

var seed = flag.Int64("seed", 0, "of the random inputs; 0 takes the clock")

// TestRandomInputs runs projections over a model database with lost answers, refused statements, crashes of processes
// and of the server, outages, partial deliveries, pauses and drains. It checks that there is never more than one job at
// a time, that no batch reaches beyond the mark, that no checkpoint moves back, that every event is handled once, that
// each failure is counted once, and that every wait ends.
func TestRandomInputs(t *testing.T) {
	s := *seed
	if s == 0 {
		s = time.Now().UnixNano()
	}
	jobs := map[string]int{}
	lives := int64(200)
	if testing.Short() {
		lives = 20
	}
	for i := range lives {
		l := newLife(t, &dice{Rand: rand.New(rand.NewSource(s + i))})
		l.jobs = jobs
		l.birth()
		for range 10 + 2*i {
			l.one()
		}
		l.comeToRest()
		if t.Failed() {
			t.Fatalf("repeat it with -seed %d", s+i)
		}
	}
	for _, job := range []Job{Load{}, Apply{}, Record{}, Note{}, WriteReason{}, Ask{}, Move{}, Halt{}, Advance{},
		Command{}} {
		if jobs[name(job)] == 0 && !testing.Short() {
			t.Errorf("no job was %s", name(job))
		}
	}
}

func FuzzInputs(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x01\x01\x3c\x05"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := newLife(t, &dice{data: data, Rand: rand.New(rand.NewSource(1))})
		l.birth()
		for len(l.d.data) > 0 {
			l.one()
		}
		l.comeToRest()
	})
}
