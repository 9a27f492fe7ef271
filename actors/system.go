package actors

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
)

// NewSystem returns an actor system that logs only to log. What the actor library logs at info level is logged at debug
// level.
func NewSystem(log *zap.Logger) *actor.ActorSystem {
	handler := &demoted{zapslog.NewHandler(log.Named("protoactor").Core())}
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(handler) }),
		// The library counts dead letters in a goroutine that lives for this long after the first one.
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
	shareBuckets(system.ProcessRegistry)
	return system
}

// registryBuckets is how many buckets an actor system keeps for its PIDs. A bucket has 32 maps.
const registryBuckets = 16

// shareBuckets leaves a registry with fewer buckets. The library makes 1,024, whose maps take 3 MB while they are
// empty, and some 10 MB with one actor each. No actor runs yet.
func shareBuckets(registry *actor.ProcessRegistryValue) {
	all := registry.LocalPIDs.LocalPIDs
	registry.LocalPIDs.LocalPIDs = slices.Clone(all[:registryBuckets])
	for _, bucket := range all {
		if bucket.IsEmpty() {
			continue // a list of its items takes 32 goroutines
		}
		for id, process := range bucket.Items() {
			bucket.Remove(id)
			registry.Add(process.(actor.Process), id)
		}
	}
}

// undelivered replaces the message by which the actor library reports a message to a stopped actor. Here, a dead letter
// is an event that was parked.
const undelivered = "message to a stopped actor"

// demoted logs at debug level what it gets at info level.
type demoted struct{ slog.Handler }

func (d *demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return d.Handler.Enabled(ctx, demote(level))
}

func (d *demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demote(r.Level)
	if !d.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	if r.Message == "[DeadLetter]" {
		if r.NumAttrs() == 1 {
			// the number of further messages, which a timer logs and perhaps only after the runtime has ended
			return nil
		}
		r.Message = undelivered
	}
	return d.Handler.Handle(ctx, r)
}

func (d *demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &demoted{d.Handler.WithAttrs(attrs)}
}

func (d *demoted) WithGroup(name string) slog.Handler { return &demoted{d.Handler.WithGroup(name)} }

func demote(level slog.Level) slog.Level {
	if level == slog.LevelInfo {
		return slog.LevelDebug
	}
	return level
}
