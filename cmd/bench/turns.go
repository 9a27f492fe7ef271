package main

import (
	"context"
	"fmt"
	"time"
)

// turnLimit is how long one turn may take before it counts as hanging.
const turnLimit = 15 * time.Minute

// side is one of those that are compared. The first of them is what the others are held against.
type side[T any] struct {
	name string
	turn func(ctx context.Context, round int) (T, error)
}

// takeTurns lets each side have one turn in each round, and returns what they came to, by side and round.
func takeTurns[T any](ctx context.Context, rounds int, sides []side[T]) ([][]T, error) {
	results := make([][]T, len(sides))
	for round := range rounds {
		for _, i := range order(len(sides), round) {
			result, err := takeTurn(ctx, sides[i], round)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", sides[i].name, round+1, err)
			}
			results[i] = append(results[i], result)
		}
	}
	return results, nil
}

func takeTurn[T any](ctx context.Context, s side[T], round int) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	return s.turn(ctx, round)
}

// order is who goes when in a round: each round another one is first, and every other round goes backwards. So two or
// three sides meet in every possible order: in what state the machine is left by one must not always burden the same
// other one.
func order(sides, round int) []int {
	step := 1
	if round%2 == 1 {
		step = sides - 1
	}
	all := make([]int, sides)
	for i := range all {
		all[i] = (round + i*step) % sides
	}
	return all
}
