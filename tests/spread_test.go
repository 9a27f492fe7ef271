package tests_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/tests/kit"
)

// The partitions of a projection run on as many nodes as there are, also among projections that stay together by
// tenant.
func TestPartitionsAreSpreadOverTheNodes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(6)
		const partitions = 6
		split := b.Recorders("split")[0]
		split.Partitions, split.Tenants = partitions, []string{"default"}
		all := append(b.Recorders("p", "q"), split)
		nodes := make([]*millrace.Runtime, 3)
		var stop func()
		for i := range nodes {
			nodes[i] = b.Another(quick(), all...)
			stop = b.Start(nodes[i])
			b.Share(nodes[0], i+1)
			b.Eventually(fmt.Sprintf("%d nodes have their part", i+1), func() bool {
				return slices.Equal(spread(b, nodes[0], "split"), slices.Repeat([]int{partitions / (i + 1)}, i+1))
			})
		}
		stop()
		b.Eventually("the others take the parts of a node that left",
			func() bool { return slices.Equal(spread(b, nodes[0], "split"), []int{3, 3}) })
	}, kit.SeveralNodes)
}

// spread returns how many partitions of a projection each owner has, sorted.
func spread(b *kit.Bundle, rt *millrace.Runtime, name string) (counts []int) {
	b.T.Helper()
	owned := make(map[string]int)
	for _, p := range b.StatusOf(rt).Projections {
		if p.ID.Name == name && p.ID.Partition > 0 {
			owned[p.Owner]++
		}
	}
	return slices.Sorted(maps.Values(owned))
}
