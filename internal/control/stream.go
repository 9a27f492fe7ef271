package control

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/tenancy"
)

// Stream describes a stream of a tenant. Version is 0 if there is no such stream. It returns tenancy.ErrUnknown, and
// tenancy.ErrDropping if the tenant's events cannot be read any more.
func (p Reads) Stream(ctx context.Context, tenant, id string) (info event.StreamInfo, err error) {
	if err := valid.Text("stream", id); err != nil {
		return info, err
	}
	err = p.db.View(ctx, func(v store.View) error {
		info = event.StreamInfo{ID: id}
		var deleting bool
		found, err := v.One("stream", []any{tenant, id}, &deleting, &info.Version, &info.Created, &info.LastEvent)
		switch {
		case err != nil:
			return err
		case !found:
			return ofTenant(tenant, tenancy.ErrUnknown)
		case deleting:
			return ofTenant(tenant, tenancy.ErrDropping)
		}
		info.Created, info.LastEvent = valid.Time(info.Created), valid.Time(info.LastEvent)
		return nil
	})
	return info, err
}

func ofTenant(tenant string, err error) error { return fmt.Errorf("tenant %q: %w", tenant, err) }
