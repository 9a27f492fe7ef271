package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/transfer"
)

// verifyBegun compares the rows of a copy that has begun.
func verifyBegun(ctx context.Context, source transfer.Source, target transfer.Target) (Report, error) {
	c, err := source.Copy(ctx)
	if err == nil && c.ID == "" {
		err = errors.New("no copy of the file has begun")
	}
	if err != nil {
		return Report{}, err
	}
	if _, _, err := begun(ctx, target, c); err != nil {
		return Report{}, err
	}
	reader, err := target.Reader(ctx, c)
	if err != nil {
		return Report{}, err
	}
	tenants, err := tenantsOf(ctx, source)
	if err != nil {
		return Report{}, err
	}
	return compare(ctx, source, reader, tenants, Options{})
}

// compare reads all rows of both stores and returns what the source has. The error is a *DifferenceError if the stores
// differ. If target is nil, it reads only the source.
func compare(ctx context.Context, source, target transfer.Reader, tenants []transfer.Tenant, opts Options) (Report, error) {
	var report Report
	for _, tenant := range tenants {
		of := TenantReport{Tenant: tenant.Name, Head: tenant.Head}
		for _, table := range transfer.Tables {
			rows, err := compareTable(ctx, source, target, table, tenant.Name)
			if err != nil {
				return Report{}, err
			}
			of.Tables = append(of.Tables, rows)
			opts.progress(Progress{Phase: Verifying, Tenant: tenant.Name, Table: table.Name, Rows: rows.Rows})
		}
		report.Tenants = append(report.Tenants, of)
	}
	return report, nil
}

// compareTable computes the digests of a table in both stores at the same time, each from what its store has.
func compareTable(ctx context.Context, source, target transfer.Reader, table transfer.Table, tenant string) (TableReport, error) {
	was, is := transfer.NewDigest(), transfer.NewDigest()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return digest(running, was, source, table, tenant, "source") })
	if target != nil {
		group.Go(func() error { return digest(running, is, target, table, tenant, "target") })
	}
	if err := group.Wait(); err != nil {
		return TableReport{}, err
	}
	report := TableReport{Table: table.Name, Rows: was.Rows, Checksum: was.Checksum()}
	if target == nil || is.Rows == was.Rows && is.Checksum() == was.Checksum() {
		return report, nil
	}
	return TableReport{}, findDifference(ctx, source, target, table, tenant)
}

func digest(ctx context.Context, d *transfer.Digest, of transfer.Reader, table transfer.Table, tenant, side string) error {
	err := pages(ctx, of, table, tenant, table.After(), func(rows []transfer.Row) error {
		for _, row := range rows {
			if err := d.Add(table, row); err != nil {
				return fmt.Errorf("at %s: %w", keyOf(table, row), err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tenant %q: read %s of the %s: %w", tenant, table.Name, side, err)
	}
	return nil
}

// findDifference returns the first row in which the stores differ, as a *DifferenceError.
func findDifference(ctx context.Context, source, target transfer.Reader, table transfer.Table, tenant string) error {
	was, is := &cursor{reader: source, table: table, tenant: tenant}, &cursor{reader: target, table: table, tenant: tenant}
	for {
		a, err := was.next(ctx)
		if err != nil {
			return err
		}
		b, err := is.next(ctx)
		if err != nil {
			return err
		}
		found := &DifferenceError{Tenant: tenant, Table: table.Name}
		order := 0
		if a != nil && b != nil {
			order = compareKeys(table, a, b)
		}
		switch {
		case a == nil && b == nil:
			return fmt.Errorf("tenant %q: the stores differed in %s when they were read, and do not differ any more", tenant, table.Name)
		case b == nil, order < 0:
			found.Key, found.Difference = keyOf(table, a), "the target lacks it"
			return found
		case a == nil, order > 0:
			found.Key, found.Difference = keyOf(table, b), "the source does not have it"
			return found
		}
		column, err := transfer.Different(table, a, b)
		if err != nil {
			return err
		}
		if column != "" {
			found.Key, found.Difference = keyOf(table, a), "another "+column
			return found
		}
	}
}

// cursor reads rows one by one.
type cursor struct {
	reader transfer.Reader
	table  transfer.Table
	tenant string
	after  transfer.Row
	rows   []transfer.Row
}

// next returns the next row, or nil after the last one.
func (c *cursor) next(ctx context.Context) (row transfer.Row, err error) {
	if c.after == nil {
		c.after = c.table.After()
	}
	if len(c.rows) == 0 {
		if c.rows, err = c.reader.Page(ctx, c.table, c.tenant, c.after); err != nil || len(c.rows) == 0 {
			return nil, err
		}
	}
	row, c.rows = c.rows[0], c.rows[1:]
	c.after = c.table.Key(row)
	return row, nil
}

// compareKeys compares the keys of two rows, in the order in which rows are read.
func compareKeys(table transfer.Table, a, b transfer.Row) int {
	return slices.CompareFunc(table.Key(a), table.Key(b), func(x, y any) int {
		if s, ok := x.(string); ok {
			t, _ := y.(string)
			return strings.Compare(s, t)
		}
		m, _ := x.(int64)
		n, _ := y.(int64)
		return int(max(-1, min(1, m-n)))
	})
}

// keyOf describes the key of a row.
func keyOf(table transfer.Table, row transfer.Row) string {
	var parts []string
	for i, value := range table.Key(row) {
		text := fmt.Sprint(value)
		if s, ok := value.(string); ok {
			text = excerpt.Quoted(s)
		}
		parts = append(parts, table.Columns[i].Name+" "+text)
	}
	return strings.Join(parts, ", ")
}
