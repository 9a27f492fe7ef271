package millracetest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// data is what a Kit does with the data of its tenant.
type data interface {
	create(ctx context.Context) error
	event.Appender
	exec(ctx context.Context, statement string) error
	// query returns a line for each row.
	query(ctx context.Context, query string) ([]string, error)
}

// dataOf returns the data of a tenant.
func (b *bench) dataOf(tenant string) data {
	b.t.Helper()
	switch s := b.store.(type) {
	case *pgstore.Store:
		of, err := s.ForTenant(tenant)
		b.must(err)
		return pgData{of, s}
	case *sqlitestore.Store:
		of, err := s.ForTenant(tenant)
		b.must(err)
		return sqliteData{of, s}
	}
	b.t.Fatalf("new kit: the store must be a *pgstore.Store or a *sqlitestore.Store: %T", b.store)
	return nil
}

type pgData struct {
	*pgstore.Tenant
	store *pgstore.Store
}

func (d pgData) create(ctx context.Context) error {
	_, err := d.store.CreateTenant(ctx, d.Name())
	return err
}

func (d pgData) exec(ctx context.Context, statement string) error {
	return d.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

func (d pgData) query(ctx context.Context, query string) (lines []string, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		found, err := tx.Query(ctx, query, pgx.QueryExecModeSimpleProtocol) // its results are texts
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			raw := found.RawValues()
			values := make([]any, len(raw))
			for i, v := range raw {
				if v != nil {
					values[i] = string(v)
				}
			}
			lines = append(lines, line(values))
		}
		return found.Err()
	})
	return lines, err
}

type sqliteData struct {
	*sqlitestore.Tenant
	store *sqlitestore.Store
}

func (d sqliteData) create(ctx context.Context) error {
	_, err := d.store.CreateTenant(ctx, d.Name())
	return err
}

func (d sqliteData) exec(ctx context.Context, statement string) error {
	return d.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	})
}

func (d sqliteData) query(ctx context.Context, query string) (lines []string, err error) {
	found, err := d.store.DB().QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	for found.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := found.Scan(into...); err != nil {
			return nil, err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = string(b)
			}
		}
		lines = append(lines, line(values))
	}
	return lines, found.Err()
}

// line prints the values of a row on one line.
func line(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = "NULL"
		if v != nil {
			texts[i] = strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(fmt.Sprint(v))
		}
	}
	return strings.Join(texts, " | ")
}

// diff returns the lines of both lists, those of want alone after "-" and those of got alone after "+".
func diff(want, got []string) string {
	// common[i][j] is how many lines want[i:] and got[j:] have in common, in order.
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var text strings.Builder
	text.WriteString("  (- want, + got)\n")
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			fmt.Fprintf(&text, "    %s\n", want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&text, "  - %s\n", want[i])
			i++
		default:
			fmt.Fprintf(&text, "  + %s\n", got[j])
			j++
		}
	}
	return text.String()
}
