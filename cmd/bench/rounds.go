package main

import (
	"context"
	"fmt"
	"time"
)

// roundLimit limits the round of a contender.
const roundLimit = 15 * time.Minute

// runRounds runs each contender once in each round, and returns the figures by contender and round.
func runRounds(ctx context.Context, rounds int, metrics int, contenders []contender) ([][]figures, error) {
	results := make([][]figures, len(contenders))
	for round := range rounds {
		for _, i := range order(len(contenders), round) {
			f, err := runOne(ctx, contenders[i], round)
			if err == nil && len(f) != metrics {
				err = fmt.Errorf("%d figures, want %d", len(f), metrics)
			}
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", contenders[i].name, round+1, err)
			}
			results[i] = append(results[i], f)
		}
	}
	return results, nil
}

// runOne returns the figures of a round after they were verified.
func runOne(ctx context.Context, c contender, round int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	f, check, err := c.round(ctx, round)
	if err != nil {
		return nil, err
	}
	if err := check(ctx); err != nil {
		return nil, fmt.Errorf("not verified: %w", err)
	}
	return f, nil
}

// order returns the order of the contenders in a round. Each round begins with another one, and every other round is
// reversed. Two or three contenders thus run in every possible order, so that the state in which one leaves the machine
// affects all others.
func order(contenders, round int) []int {
	step := 1
	if round%2 == 1 {
		step = contenders - 1
	}
	all := make([]int, contenders)
	for i := range all {
		all[i] = (round + i*step) % contenders
	}
	return all
}
