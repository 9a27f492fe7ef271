package chaos_test

import "time"

var networkFaults = []fault{
	{
		name:    "network cut",
		expects: "others take over; joined again, the node takes part again",
		weight:  4, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error {
			return s.through(s.node.proxy.cut)
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network half open",
		expects: "nothing arrives and nothing is refused: others take over when the heartbeat has run out; joined again, the node takes part again",
		weight:  3, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error {
			return s.badly(weather{silent: true})
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network slow",
		expects: "the node keeps what it has",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.badly(weather{latency: 100 * time.Millisecond, jitter: 75 * time.Millisecond})
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network narrow",
		expects: "the node lives on and takes part",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.badly(weather{rate: 64 << 10})
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "network resets connections",
		expects: "others take over where it lasts; afterwards the node takes part again",
		weight:  3, least: 500 * time.Millisecond, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.badly(weather{resets: true})
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
}

// badly lets the node's network be bad for a while.
func (s *strike) badly(w weather) error {
	return s.through(func() { s.node.proxy.poison(w) })
}

// through does something to the node's network, and undoes it after a while.
func (s *strike) through(begin func()) error {
	if s.victim != nil {
		over := s.hit(s.victim, "network")
		defer over()
	}
	begin()
	s.wait(s.lasts)
	return s.node.proxy.heal()
}
