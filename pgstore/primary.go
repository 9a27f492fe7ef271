package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/projection"
)

// primaryOnly refuses connections to a server that takes no writes, unless the configuration has a check of its own.
func primaryOnly(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil {
		config.ValidateConnect = takesWrites
	}
}

// takesWrites returns an error if the session is read-only. Where the DSN names other hosts, they are tried next.
func takesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	result := conn.ExecParams(ctx, ping, nil, nil, nil, nil).Read()
	switch {
	case result.Err != nil:
		return result.Err
	case len(result.Rows) != 1:
		return fmt.Errorf("%d rows came when the server was asked whether it takes writes", len(result.Rows))
	case string(result.Rows[0][0]) != "f":
		return fmt.Errorf("the server is a standby in recovery: %w", projection.ErrNotPrimary)
	case string(result.Rows[0][1]) != "f":
		return errReadOnly
	}
	return nil
}

// onePrimary returns an error if connections may lead to several servers and none is checked for taking writes.
func onePrimary(config *pgx.ConnConfig) error {
	if config.ValidateConnect != nil {
		return nil
	}
	for _, other := range config.Fallbacks {
		if other.Host != config.Host || other.Port != config.Port {
			return fmt.Errorf("the pool connects to several hosts (%s:%d and %s:%d), of which some may be standbys: add target_session_attrs=read-write to its DSN",
				config.Host, config.Port, other.Host, other.Port)
		}
	}
	return nil
}
