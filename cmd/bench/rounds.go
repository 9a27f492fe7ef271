package main

import (
	"context"
	"fmt"
	"time"
)

// roundLimit is how long a contender may take in one round before it counts as hanging.
const roundLimit = 15 * time.Minute

// contender is one of those that are compared. The others are compared with the first.
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

// order is the order of the contenders in a round: each round another one is first, and every other round goes backwards. So
// two or three contenders meet in every possible order. The state in which one leaves the machine must not always burden the
// same other one.
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
