package chaos_test

import (
	"errors"
	"time"
)

var networkFaults = []fault{
	{
		name:    "network cut",
		expects: "others take over; joined again, the node takes part again",
		weight:  4, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error {
			return s.through(func() error {
				s.node.proxy.cut()
				return nil
			})
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network half open",
		expects: "nothing arrives and nothing is refused: others take over when the heartbeat has run out; joined again, the node takes part again",
		weight:  3, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error {
			return s.through(func() error { return s.node.proxy.poison("timeout", `{"timeout": 0}`) })
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network slow",
		expects: "the node keeps what it has",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.through(func() error { return s.node.proxy.poison("latency", `{"latency": 100, "jitter": 75}`) })
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network narrow",
		expects: "the node lives on and takes part",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.through(func() error { return s.node.proxy.poison("bandwidth", `{"rate": 64}`) })
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network resets connections",
		expects: "others take over where it lasts; afterwards the node takes part again",
		weight:  3, least: 500 * time.Millisecond, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.through(func() error { return s.node.proxy.poison("reset_peer", `{"timeout": 0}`) })
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
}

// through makes the node's network bad for a while.
func (s *strike) through(begin func() error) error {
	if s.victim != nil {
		over := s.hit(s.victim, "network")
		defer over()
	}
	err := begin()
	if err == nil {
		s.wait(s.lasts)
	}
	return errors.Join(err, s.node.proxy.heal())
}
