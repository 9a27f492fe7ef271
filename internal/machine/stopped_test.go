package machine

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/tenancy"
)

// A node that was cut off while a tenant was dropped has nothing that a person must repair.
func TestDroppedTenantIsNoAlarm(t *testing.T) {
	for err, want := range map[error]zapcore.Level{
		fmt.Errorf("read events: %w", tenancy.ErrUnknown): zap.InfoLevel,
		tenancy.ErrDropped:              zap.ErrorLevel,
		errors.New("permission denied"): zap.ErrorLevel,
	} {
		if got := StoppedLevel(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
