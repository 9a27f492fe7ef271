package main

import (
	"fmt"
	"math"
)

// outcome is a goal beside the measured value.
type outcome struct {
	Goal  string  `json:"goal"`
	Value float64 `json:"value"`
	// Known is false if the value cannot be measured on this machine.
	Known bool `json:"known"`
	Met   bool `json:"met"`
}

func (g goal) String() string {
	text := g.contender + ": " + g.metric
	sign, bound := "≤", g.atMost
	if g.atLeast > 0 {
		sign, bound = "≥", g.atLeast
	}
	if g.to != "" {
		return fmt.Sprintf("%s %s %v × %s", text, sign, bound, g.to)
	}
	return fmt.Sprintf("%s %s %v", text, sign, bound)
}

// check compares the medians of a result with the goal.
func (g goal) check(r result) (outcome, error) {
	value, found := r.median(g.contender, g.metric)
	if !found {
		return outcome{}, fmt.Errorf("goal %q: %s has no such contender and metric", g, r.name)
	}
	if g.to != "" {
		base, found := r.median(g.to, g.metric)
		if !found {
			return outcome{}, fmt.Errorf("goal %q: %s has no such contender", g, r.name)
		}
		value /= base
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return outcome{Goal: g.String()}, nil
	}
	met := g.atMost == 0 || value <= g.atMost
	if g.atLeast > 0 {
		met = value >= g.atLeast
	}
	return outcome{Goal: g.String(), Value: value, Known: true, Met: met}, nil
}

// outcomes returns the outcomes of all goals of a result.
func (r result) outcomes() ([]outcome, error) {
	var all []outcome
	for _, g := range r.goals {
		o, err := g.check(r)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// verdict returns the outcome in words.
func (o outcome) verdict() string {
	switch {
	case !o.Known:
		return "cannot be measured here"
	case o.Met:
		return "met"
	}
	return "not met"
}
