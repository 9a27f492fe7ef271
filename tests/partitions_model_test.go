package tests_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// modelStream is a stream of the model: what was applied of it, and what is parked, in order.
type modelStream struct {
	name            string
	applied, parked []int64
}

// splitModel is a projection that parks streams, and a naive model of it that knows no partitions.
type splitModel struct {
	*kit.Bundle
	rand    *rand.Rand
	n       int
	streams []*modelStream
	poison  sync.Map // positions at which the handler fails
	rt      *millrace.Runtime
	stop    func()
}

func (m *splitModel) start() {
	fails := func(position int64) bool { _, bad := m.poison.Load(position); return bad }
	handler := m.Store.Batch(kit.FailsAt("p", fails, kit.Fails))
	m.rt = m.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
		Partitions: m.n, MaxEvents: 5, Retry: kit.Soon(0), OnFailure: projection.ActionParkStream,
		MaxFailureShare: projection.NoLimit, Handler: handler})
	m.stop = m.Start(m.rt)
}

// append appends some events to a stream. The first of them may fail, and the others are parked after it.
func (m *splitModel) append() {
	s := m.streams[m.rand.IntN(len(m.streams))]
	bad := m.rand.IntN(4) == 0
	if bad {
		m.Pause(m.rt, "p") // until the position of the poison event is known
	}
	at := m.Append(s.name, 1+m.rand.IntN(8)).Positions
	if bad {
		m.poison.Store(at[0], true)
		m.Resume(m.rt, "p")
	}
	if len(s.parked) > 0 || bad {
		s.parked = append(s.parked, at...)
	} else {
		s.applied = append(s.applied, at...)
	}
}

// mend lets the handler succeed at one of the events that it fails at.
func (m *splitModel) mend() {
	m.Reaches(m.rt, "p", m.Head())
	for _, i := range m.rand.Perm(len(m.streams)) {
		for _, position := range m.streams[i].parked {
			if _, bad := m.poison.LoadAndDelete(position); bad {
				return
			}
		}
	}
}

// command replays or discards the dead letters of all partitions, of one, or of one stream.
func (m *splitModel) command() {
	m.Reaches(m.rt, "p", m.Head())
	id, filter := projection.ID{Name: "p"}, projection.DeadLetterFilter{All: true}
	chosen := slices.Clone(m.streams)
	switch m.rand.IntN(3) {
	case 1:
		id.Partition = partition.Numbers(m.n)[m.rand.IntN(m.n)]
		chosen = slices.DeleteFunc(chosen,
			func(s *modelStream) bool { return partition.Of(partition.Slot(s.name), m.n) != id.Partition })
	case 2:
		i := m.rand.IntN(len(chosen))
		chosen = chosen[i : i+1]
		filter = projection.DeadLetterFilter{Stream: chosen[0].name}
	}
	letters := m.Store.DeadLetters(id)
	var want projection.CommandResult
	do := letters.Replay
	discards := m.rand.IntN(4) == 0
	if discards {
		do = letters.Discard
	}
	for _, s := range chosen {
		for len(s.parked) > 0 {
			if _, bad := m.poison.Load(s.parked[0]); bad && !discards {
				want.Failed++
				break
			}
			want.Done++
			if !discards {
				s.applied = append(s.applied, s.parked[0])
			}
			s.parked = s.parked[1:]
		}
	}
	result, err := do(m.Ctx, filter, 10_000)
	want.Command = result.Command
	if err != nil || result != want {
		m.T.Errorf("discard %v of %v, %+v: %+v, %v; want %+v", discards, id, filter, result, err, want)
	}
}

// check compares everything with the model.
func (m *splitModel) check() {
	m.Reaches(m.rt, "p", m.Head())
	positions := m.Positions("p")
	for _, s := range m.streams {
		of := slices.Concat(s.applied, s.parked)
		if got := slices.DeleteFunc(slices.Clone(positions),
			func(p int64) bool { return !slices.Contains(of, p) }); !slices.Equal(got, s.applied) {
			m.T.Fatalf("of stream %s %v were applied, want %v", s.name, got, s.applied)
		}
	}
	for _, number := range partition.Numbers(m.n) {
		var want []int64
		for _, s := range m.streams {
			if partition.Of(partition.Slot(s.name), m.n) == number {
				want = append(want, s.parked...)
			}
		}
		slices.Sort(want)
		letters, err := m.Store.DeadLetters(projection.ID{Name: "p", Partition: number}).List(m.Ctx,
			projection.DeadLetterPage{Limit: 10_000})
		m.Must(err)
		var got []int64
		for _, l := range letters {
			got = append(got, l.Position)
		}
		if !slices.Equal(got, want) {
			m.T.Fatalf("in partition %d %v are parked, want %v", number, got, want)
		}
	}
}

func TestPartitionsDoWhatANaiveModelDoes(t *testing.T) {
	for _, n := range []int{1, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			kit.Run(t, func(t *testing.T, b *kit.Bundle) {
				m := &splitModel{Bundle: b.Patient(), rand: rand.New(rand.NewPCG(kit.Seed(t), 0)), n: n}
				for i := range 10 {
					m.streams = append(m.streams, &modelStream{name: fmt.Sprint("s", i)})
				}
				m.start()
				steps := []func(){m.append, m.append, m.append, m.mend, m.command, func() {
					m.stop()
					m.start()
				}}
				m.append()
				for range 60 {
					steps[m.rand.IntN(len(steps))]()
					if m.rand.IntN(3) == 0 {
						m.check()
					}
				}
				m.check()
			})
		})
	}
}
