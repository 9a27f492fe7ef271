package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// outside has the extensions outside the search path of named tenants, and their schemas.
type outside struct{ extensions, schemas []string }

// toShare returns the setting of Options.SharedSchemas with which tenants find them.
func (o outside) toShare() string {
	quoted := make([]string, len(o.schemas))
	for i, schema := range o.schemas {
		quoted[i] = fmt.Sprintf("%q", schema)
	}
	return "Options.SharedSchemas: []string{" + strings.Join(quoted, ", ") + "}"
}

// extensions finds the extensions that named tenants miss.
type extensions struct {
	*database
	// warned reports whether warn has run.
	warned atomic.Bool
}

// find lists extensions that named tenants do not find. silent leaves out extensions with functions alone:
// a statement that calls a missing function fails, while one with a missing operator may find another operator.
func (e *extensions) find(ctx context.Context, q querier, silent bool) (found outside, err error) {
	shared := append([]string{}, e.opts.SharedSchemas...)
	rows, _ := q.Query(ctx, e.control.sql("extensions_outside"), pgx.QueryExecModeExec, shared)
	var typed bool
	var name, schema string
	_, err = pgx.ForEachRow(rows, []any{&typed, &name, &schema}, func() error {
		if silent && !typed {
			return nil
		}
		found.extensions = append(found.extensions, name+" in "+schema)
		if !slices.Contains(found.schemas, schema) {
			found.schemas = append(found.schemas, schema)
		}
		return nil
	})
	return found, err
}

// warn logs the extensions that named tenants miss without an error, once per store.
func (e *extensions) warn(ctx context.Context) {
	if e.warned.Swap(true) {
		return
	}
	found, err := e.find(ctx, e.pool, true)
	if err != nil {
		e.warned.Store(false)
		e.log.Debug("reading extensions outside the search path failed", zap.Error(err))
		return
	}
	if len(found.extensions) > 0 {
		e.log.Warn("extensions outside the search path of named tenants",
			zap.String("effect", "statements may use other operators in their place without an error"),
			zap.Strings("extensions", found.extensions), zap.String("share", found.toShare()))
	}
}

// wrap adds the extensions that a named tenant does not find to an error about a function, an operator or a
// type that does not exist.
func (e *extensions) wrap(ctx context.Context, q querier, tenant string, err error) error {
	if tenant == projection.DefaultTenant || !pgerr.Is(err, pgerr.UndefinedFunction, pgerr.UndefinedObject) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	found, failed := e.find(ctx, q, false)
	if failed != nil || len(found.extensions) == 0 {
		return err
	}
	named := func(err error) error {
		return fmt.Errorf("%w; outside of the search path of tenant %q: %s; to share them: %s", err, tenant,
			strings.Join(found.extensions, ", "), found.toShare())
	}
	var fault *faults.Fault
	if errors.As(err, &fault) {
		changed := *fault
		changed.Err = named(fault.Err)
		return &changed
	}
	return named(err)
}
