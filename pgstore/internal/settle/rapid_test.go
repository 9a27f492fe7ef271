package settle

import (
	"testing"

	"pgregory.net/rapid"
)

// A failure is made small, and printed with its seed and the name of a file. Repeat it by
//
//	go test ./pgstore/internal/settle -run TestSettlingProperty -rapid.seed=N
//	go test ./pgstore/internal/settle -run TestSettlingProperty -rapid.failfile=NAME
//
// and look for longer by -rapid.checks=100000.
func TestSettlingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		if err := play(choose, rapid.IntRange(1, 150).Draw(t, "steps"), flaw{}); err != nil {
			t.Fatal(err)
		}
	})
}
