package actors

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/usererror"
)

// shared is what the actors of a runtime share, since there may be 100,000 of them.
type shared struct {
	mu      sync.Mutex
	started time.Time
	// props are the properties of all actors, which take some 300 bytes. next is the actor that is being spawned. This
	// relies on the library: it produces an actor once, and before Spawn returns.
	props *actor.Props
	next  actor.Actor
	// configs are the configurations of the state machines, by definition.
	configs map[*engine.Definition]*machine.Config
	// ahead is the room for the events that projections read ahead.
	ahead room
	// failed are the last errors that stopped projections or opened breakers.
	failed usererror.Recent
}

func (s *shared) init() {
	s.started, s.configs = time.Now(), make(map[*engine.Definition]*machine.Config)
	s.ahead.left = aheadBytes
	s.props = actor.PropsFromProducer(func() actor.Actor { return s.next }).Configure(mailbox, dispatched)
}

// Spawn spawns an actor as a child of the actor of ctx.
func (d *Deps) Spawn(ctx actor.SpawnerContext, name string, b Behaviour) (*actor.PID, error) {
	s := &d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = &shell{log: d.Log, behaviour: b}
	defer func() { s.next = nil }()
	return ctx.SpawnNamed(s.props, name)
}

// configOf returns the configuration of the machines of a definition.
func (d *Deps) configOf(def *engine.Definition) *machine.Config {
	s := &d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	config := s.configs[def]
	if config == nil {
		config = &machine.Config{Def: def, HeartbeatInterval: d.Timing.HeartbeatInterval,
			AdvanceEvery: d.Timing.AdvanceInterval,
			Start:        s.started, ReplayBackoff: d.Timing.ReplayRest}
		s.configs[def] = config
	}
	return config
}
