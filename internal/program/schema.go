package program

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed queries/taken_schemas.sql
	takenSchemas string
	//go:embed queries/create_schema.sql
	createSchema string
	//go:embed queries/drop_schemas.sql
	dropSchemas string
)

// ErrUnderWay is returned when another process claimed the same schemas at the same time.
var ErrUnderWay = errors.New("another run is under way in this database")

// TakenError reports schemas that exist already.
type TakenError struct{ Schemas []string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("there is already a schema %s; if no other run uses it and its data is not needed, remove it with: %s",
		strings.Join(e.Schemas, " and a schema "), Drop(e.Schemas))
}

// Claim calls create in a transaction to create these schemas. If one of them exists, Claim fails with a *TakenError,
// or with ErrUnderWay if another process has just created it.
func Claim(ctx context.Context, pool *pgxpool.Pool, schemas []string, create func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var taken []string
		if err := tx.QueryRow(ctx, takenSchemas, schemas).Scan(&taken); err != nil {
			return err
		}
		if len(taken) > 0 {
			return &TakenError{taken}
		}
		return create(tx)
	})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P06" || pgErr.Code == "23505") {
		return ErrUnderWay
	}
	return err
}

// Drop returns the statement that removes schemas and their content.
func Drop(schemas []string) string {
	return strings.TrimSpace(strings.ReplaceAll(dropSchemas, "{schemas}", strings.Join(schemas, ", ")))
}

// Remove removes schemas and their content. Its error names the statement that does it.
func Remove(ctx context.Context, pool *pgxpool.Pool, schemas []string) error {
	if _, err := pool.Exec(ctx, Drop(schemas), pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("remove the tables: %w; remove them with: %s", err, Drop(schemas))
	}
	return nil
}
