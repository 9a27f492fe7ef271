package pgstore

import (
	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/projection"
)

// DeadLetters returns the dead letters of a projection, of all its partitions unless id names one.
func (s *Store) DeadLetters(id projection.ID) projection.DeadLetters {
	return deadletters.Of(s.port(), id)
}
