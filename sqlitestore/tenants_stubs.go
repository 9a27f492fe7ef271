package sqlitestore

import (
	"context"

	"github.com/millrace-go/millrace/projection"
)

func (s port) Repartition(ctx context.Context, id projection.ID, n int) error { panic("not yet") }
