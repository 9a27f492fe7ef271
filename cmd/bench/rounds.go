package main

import (
	"context"
	"fmt"
	"time"
)

// roundLimit limits the round of a contender.
const roundLimit = 15 * time.Minute

// contender is an implementation to measure. The first contender is the baseline of the others.
type contender[T any] struct {
	name string
	run  func(ctx context.Context, round int) (T, error)
}

// runRounds runs each contender once in each round, and returns the results, by contender and round.
func runRounds[T any](ctx context.Context, rounds int, contenders []contender[T]) ([][]T, error) {
	results := make([][]T, len(contenders))
	for round := range rounds {
		for _, i := range order(len(contenders), round) {
			result, err := runOne(ctx, contenders[i], round)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", contenders[i].name, round+1, err)
			}
			results[i] = append(results[i], result)
		}
	}
	return results, nil
}

func runOne[T any](ctx context.Context, c contender[T], round int) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	return c.run(ctx, round)
}

// order returns the order of the contenders in a round. Each round begins with another one, and every other round is reversed. Two
// or three contenders thus run in every possible order, so that the state in which one leaves the machine affects all others.
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
