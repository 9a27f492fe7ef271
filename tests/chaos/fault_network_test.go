package chaos_test

import (
	"math/rand/v2"
	"time"
)

var networkFaults = []fault{
	{
		name:    "network disconnected",
		expects: "other nodes take over; reconnected, the node rejoins",
		reach:   reachNetwork, weight: 4, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error {
			defer s.hit(s.victim, "disconnected")()
			s.node.proxy.disconnect()
			s.wait(s.lasts)
			return s.node.proxy.heal()
		},
		check: (*strike).rejoined,
	},
	impairs("network half open",
		"nothing arrives and nothing is refused: other nodes take over when the heartbeat has expired; then the node rejoins",
		impairment{silent: true}, fault{weight: 3,
			least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second}),
	impairs("network slow", "the node keeps its leases",
		impairment{delay: latency}, fault{weight: 2,
			least: time.Second, most: 3 * time.Second, alone: 2 * time.Second}),
	impairs("network narrow", "the node keeps running",
		impairment{delay: narrow}, fault{weight: 2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second}),
	impairs("network resets connections", "other nodes may take over; then the node rejoins",
		impairment{resets: true}, fault{weight: 3,
			least: 500 * time.Millisecond, most: 3 * time.Second, alone: 2 * time.Second}),
}

// latency delays each message at random.
func latency(int) time.Duration { return time.Duration(25+rand.IntN(150)) * time.Millisecond }

// narrow is a bandwidth of 64 KiB a second.
func narrow(bytes int) time.Duration { return time.Second * time.Duration(bytes) / (64 << 10) }

// impairs completes a fault that impairs the network of a node.
func impairs(name, expects string, i impairment, f fault) fault {
	f.name, f.expects, f.reach, f.check = name, expects, reachNetwork, (*strike).rejoined
	f.strike = func(s *strike) error {
		defer s.hit(s.victim, "impaired")()
		s.node.proxy.impair(i)
		s.wait(s.lasts)
		return s.node.proxy.heal()
	}
	return f
}
