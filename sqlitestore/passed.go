package sqlitestore

import (
	"encoding/json"
	"fmt"

	"github.com/millrace-go/millrace/internal/partition"
)

// passedFrom reads the text of millrace_projections.passed.
func passedFrom(text string) ([]partition.Passed, error) {
	if text == "[]" {
		return nil, nil
	}
	var list [][]int64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read the passed slots %q: %w", text, err)
	}
	passed := make([]partition.Passed, len(list))
	for i, p := range list {
		if len(p) != 3 || p[0] < 0 || p[1] <= p[0] || p[1] > partition.Slots {
			return nil, fmt.Errorf("read the passed slots %q: %v is not a range of slots and a position", text, p)
		}
		passed[i] = partition.Passed{Range: partition.Range{From: int32(p[0]), To: int32(p[1])}, Position: p[2]}
	}
	return passed, nil
}
