package upcast

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
)

// checking gathers what is wrong with a Graph.
type checking struct {
	*Graph
	steps []Step
	found []error
}

func (c *checking) add(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf(format, args...))
}

// names checks each name by itself.
func (c *checking) names(types []string) {
	for _, t := range types {
		if err := checkName(t); err != nil {
			c.found = append(c.found, err)
		}
	}
}

func checkName(eventType string) error {
	if eventType == "" {
		return errors.New("an event type must not be empty")
	}
	if err := valid.Text("event type", eventType); err != nil {
		return err
	}
	_, _, err := parse(eventType)
	return err
}

// targets checks that there is one step from each old type, and that its targets are registered.
func (c *checking) targets() {
	for _, s := range c.steps {
		if c.roads[s.From] != nil {
			c.add("event type %s has two upcasters: to %s, and to %s", excerpt.Quoted(s.From),
				quoted(c.roads[s.From].step.To), quoted(s.To))
			continue
		}
		c.roads[s.From] = &road{step: s}
		if len(s.To) == 0 {
			c.add("the upcaster of event type %s has no targets", excerpt.Quoted(s.From))
		}
		for i, to := range s.To {
			switch {
			case to == "":
				c.add("the upcaster of event type %s has an empty target", excerpt.Quoted(s.From))
			case slices.Contains(s.To[:i], to):
				c.add("the upcaster of event type %s names its target %s twice", excerpt.Quoted(s.From),
					excerpt.Quoted(to))
			case !c.registered[to]:
				c.add("the upcaster of event type %s leads to %s, which is not registered", excerpt.Quoted(s.From),
					excerpt.Quoted(to))
			}
		}
	}
}

// cycles names each cycle once. It reports whether there are any.
func (c *checking) cycles() (found bool) {
	const onPath, done = 1, 2
	state := make(map[string]int)
	var path []string
	var visit func(t string)
	visit = func(t string) {
		switch {
		case state[t] == done || c.roads[t] == nil:
			return
		case state[t] == onPath:
			found = true
			c.add("the upcasters form a cycle: %s", joined(append(path[slices.Index(path, t):], t), " -> "))
			return
		}
		state[t], path = onPath, append(path, t)
		for _, to := range c.roads[t].step.To {
			visit(to)
		}
		state[t], path = done, path[:len(path)-1]
	}
	for _, s := range c.steps {
		visit(s.From)
	}
	return found
}

// versions checks that each version of a name leads to the newest one, and that something leads to a version above 1.
func (c *checking) versions(types []string) {
	type version struct {
		name   string
		number int
	}
	byBase := make(map[string][]version)
	var bases []string
	for _, t := range types {
		base, number, err := parse(t)
		if err != nil || slices.ContainsFunc(byBase[base], func(v version) bool { return v.name == t }) {
			continue
		}
		if byBase[base] == nil {
			bases = append(bases, base)
		}
		byBase[base] = append(byBase[base], version{t, number})
	}
	for _, base := range bases {
		all := byBase[base]
		slices.SortStableFunc(all, func(a, b version) int { return cmp.Compare(a.number, b.number) })
		newest := all[len(all)-1]
		for i, v := range all[:len(all)-1] {
			switch r := c.roads[v.name]; {
			case v.number == all[i+1].number:
				c.add("event types %s and %s are the same version", excerpt.Quoted(v.name),
					excerpt.Quoted(all[i+1].name))
			case r == nil:
				c.add("event type %s has no upcaster, although %s is newer", excerpt.Quoted(v.name),
					excerpt.Quoted(newest.name))
			case !c.leads(v.name, newest.name):
				c.add("event type %s does not lead to %s, which is newer, but to %s",
					excerpt.Quoted(v.name), excerpt.Quoted(newest.name), quoted(r.ends))
			}
		}
		if first := all[0]; first.number > 1 && !c.isTarget(first.name) {
			c.add("no upcaster leads to event type %s: one from an earlier version is missing",
				excerpt.Quoted(first.name))
		}
	}
}

// leads reports whether the road from a type passes or ends at another one.
func (c *checking) leads(from, to string) bool {
	r := c.roads[from]
	return r != nil && slices.ContainsFunc(r.step.To, func(t string) bool { return t == to || c.leads(t, to) })
}

func (c *checking) isTarget(t string) bool {
	return slices.ContainsFunc(c.steps, func(s Step) bool { return slices.Contains(s.To, t) })
}

// quoted returns names as a list of words.
func quoted(names []string) string { return joined(names, " and ") }

func joined(names []string, by string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = excerpt.Quoted(n)
	}
	return strings.Join(quoted, by)
}
