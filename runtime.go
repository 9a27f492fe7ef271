package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/logging"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/internal/waiting"
	"github.com/millrace-go/millrace/supervisor"
	"github.com/millrace-go/millrace/tenancy"
)

// Runtime runs projections. It is an Admin of its store that also knows what its own node does: see package admin. It
// is safe for concurrent use.
type Runtime struct {
	*admin.Admin
	config Config
	tuning tuning.Settings
	store  store.Driver
	plane  control.Plane
	waiter waiting.Waiter

	mu          sync.Mutex
	definitions map[string]*engine.Definition
	deps        *actors.Deps // nil while it does not run
	life        lifeOf

	figures figures
	// standstill is how long a loop may make no progress.
	standstill time.Duration
}

// New returns a Runtime. It does nothing until Run is called.
func New(config Config) (*Runtime, error) {
	config = config.withDefaults()
	driver := store.DriverOf(config.Store)
	if driver == nil {
		return nil, errors.New("new runtime: Config.Store must be set")
	}
	if err := config.validate(driver); err != nil {
		return nil, fmt.Errorf("new runtime: %w", err)
	}
	config.Logger = logging.Short(config.Logger)
	config.Observer = observing.Guarded(config.Observer, config.Logger)
	tuned := tuning.Of(config.Store, config.LeaseDuration)
	r := &Runtime{
		config: config, tuning: tuned, store: driver, plane: control.On(driver),
		definitions: make(map[string]*engine.Definition), standstill: supervisor.StuckAfter,
	}
	r.waiter = waiting.Waiter{Store: driver, Plane: r.plane, Timeout: tuned.Query, Runtime: self{r}}
	var err error
	r.Admin, err = admin.New(waiting.Store{Waiter: r.waiter, Patience: config.LeaseDuration})
	if err != nil {
		return nil, fmt.Errorf("new runtime: %w", err)
	}
	return r, nil
}

// Register adds projections, which then run for those of the runtime's tenants that Projection.Tenants selects. If it
// returns an error, it has added none of them. It returns an error while the runtime is running, and for a version of a
// name that is already registered.
func (r *Runtime) Register(projections ...Projection) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deps != nil {
		return errors.New("register: the runtime is running")
	}
	definitions := maps.Clone(r.definitions)
	for _, p := range projections {
		p = p.withDefaults()
		def, err := p.definition(r)
		name := p.storedName()
		if err == nil && definitions[name] != nil {
			err = errors.New("it is already registered")
		}
		if err != nil {
			return fmt.Errorf("register projection %s: %w", excerpt.Quoted(name), err)
		}
		definitions[name] = def
	}
	if err := validNames(definitions); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	r.definitions = definitions
	return nil
}

// Run runs the registered projections until ctx ends, and then returns nil. Before it returns, it finishes the batches
// in progress or, after Config.GracePeriod, rolls them back, and releases the leases. Run returns an error if it cannot
// start. Once it has started, it waits while the database is down.
func (r *Runtime) Run(ctx context.Context) error {
	err := r.run(ctx, nil, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // ctx ended before the start
	}
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// scope limits a run to a part of what the runtime does.
type scope struct {
	definitions map[string]*engine.Definition
	tenants     []string
	// onlyOperates reports that the run only carries out operations.
	onlyOperates bool
}

// run starts the actors, calls while, and stops the actors after while has returned. If the actors end before that, run
// cancels the context of while. Without a scope it runs all projections.
func (r *Runtime) run(ctx context.Context, only *scope, while func(ctx context.Context) error) error {
	deps, err := r.start(ctx, only)
	if err != nil {
		r.refused(err)
		return err
	}
	var ended error
	defer func() { r.ended(ended) }()
	defer r.store.OnWake(engine.Waker{Wake: deps.Feeds.Appended, Rests: deps.Feeds.Rests})()
	sup, err := supervisor.Start(deps)
	if err != nil {
		ended = err
		return err
	}
	r.config.Logger.Info("runtime started", zap.String("node", deps.Node.ID), zap.String("name", deps.Node.Name),
		zap.Strings("projections", deps.Node.Projections))
	defer reportWaits(r.store, r.config.Observer.ConnectionsWaited)()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-sup.Done()
		cancel()
	}()
	err = while(running)
	r.stopping()
	ended = r.stop(ctx, sup)
	if ended == nil {
		ended = sup.Err() // which has no other owner now
	}
	deps.Wait()
	r.config.Logger.Info("runtime ended", zap.String("node", deps.Node.ID), zap.String("name", deps.Node.Name))
	return cmp.Or(ended, err)
}

// stop stops the actors. It waits for the grace period, and for the time that a cancelled handler has to return.
func (r *Runtime) stop(ctx context.Context, sup *supervisor.Supervisor) error {
	const afterGrace = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.GracePeriod+afterGrace)
	defer cancel()
	return sup.Stop(ctx, r.config.GracePeriod)
}

// start returns what the actors of one run share.
func (r *Runtime) start(ctx context.Context, only *scope) (*actors.Deps, error) {
	if err := r.store.NotWithin(ctx); err != nil {
		return nil, err
	}
	if err := r.checkTenants(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if only == nil {
		only = &scope{definitions: r.definitions, tenants: r.config.Tenants}
	}
	switch {
	case r.deps != nil:
		return nil, errors.New("the runtime is already running")
	case len(only.definitions) == 0:
		return nil, errors.New("no projection is registered")
	}
	c := r.config
	operating := r.node(only)
	node := operating
	if only.onlyOperates {
		node.Projections, node.Filters, node.Delivers = nil, nil, nil
	}
	deps := &actors.Deps{
		System:    actors.NewSystem(c.Logger),
		Store:     actors.StoreOf(r.store),
		Log:       c.Logger,
		Node:      node,
		Operating: operating,
		Timing: actors.Timing{
			// Two checks miss a dead node's lock within 0.7 of FailureDetection; the rest is for claiming its leases.
			ListPeers: c.FailureDetection * 4 / 10, Confirm: c.FailureDetection * 3 / 10,
			HeartbeatInterval: r.tuning.Heartbeat, PollInterval: c.PollInterval, ReconcileInterval: r.tuning.Reconcile,
			AdvanceInterval: r.tuning.Advance, QueryTimeout: r.tuning.Query, ReplayRest: 100 * time.Millisecond,
		},
		Definitions: only.definitions,
		Observer:    c.Observer,
		Limiter: actors.NewLimiter(actors.Limits{Connections: r.store.Connections(),
			Batches:          cmp.Or(c.MaxBatches, r.store.DefaultBatches()),
			BatchesPerTenant: c.MaxBatchesPerTenant, Deliveries: c.MaxDeliveries, TenantWeight: c.TenantWeight,
			Log:    c.Logger,
			Waited: c.Observer.SlotWaited}),
	}
	deps.Init()
	r.deps, r.life = deps, lifeOf{}
	return deps, nil
}

// node returns the node of one run.
func (r *Runtime) node(only *scope) engine.Node {
	n := engine.Node{ID: uuid.NewString(), Name: r.config.NodeName,
		Projections: slices.Sorted(maps.Keys(only.definitions)), Tenants: only.tenants,
		Filters: make(map[string]engine.TenantFilter), LeaseDuration: r.config.LeaseDuration}
	for name, def := range only.definitions {
		if !def.Tenants.All() {
			n.Filters[name] = def.Tenants
		}
		if def.Delivers {
			n.Delivers = append(n.Delivers, name)
		}
	}
	return n
}

// refused records why the runtime did not start, unless it runs already.
func (r *Runtime) refused(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deps == nil {
		r.life = lifeOf{refused: err}
	}
}

// stopping records that the run ends.
func (r *Runtime) stopping() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life.stopping = true
}

// ended ends a run. err is why it ended by itself, or nil.
func (r *Runtime) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deps, r.life = nil, lifeOf{crash: err}
}

// running returns what the actors share. It is nil while the runtime is not running.
func (r *Runtime) running() *actors.Deps {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deps
}

// self is a Runtime as package admin knows it.
type self struct{ *Runtime }

func (s self) Running() *actors.Deps { return s.running() }

func (s self) Definition(id ProjectionID) *engine.Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	def, tenant := s.definitions[id.Name], engine.FullTenant(id.Tenant)
	if def != nil && def.Tenants.Matches(tenant) &&
		(len(s.config.Tenants) == 0 || slices.Contains(s.config.Tenants, tenant)) {
		return def
	}
	return nil
}

func (s self) KnowsLater(id ProjectionID) bool {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.definitions))
	s.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool {
		later := ProjectionID{Tenant: id.Tenant, Name: name}
		return isLater(later, id) && s.Definition(later) != nil
	})
}

// isLater reports whether an ID names a later version of the same projection.
func isLater(later, id ProjectionID) bool {
	name, version := later.Version()
	earlierName, earlier := id.Version()
	return name == earlierName && version > earlier
}

// deliveryDeadline is an engine.LeaseDeadline.
func (r *Runtime) deliveryDeadline() (until time.Time, changed <-chan struct{}) {
	if deps := r.running(); deps != nil {
		return deps.DeliveryDeadline()
	}
	return time.Time{}, nil
}

// ackSlot waits for a connection's slot for a statement of a delivery.
func (r *Runtime) ackSlot(ctx context.Context, id ProjectionID, weight int) (release func(), err error) {
	if deps := r.running(); deps != nil {
		return deps.Limiter.Ack(ctx, id, weight)
	}
	return func() {}, nil
}

// tenants returns those of the runtime's tenants that exist, in any state.
func (r *Runtime) tenants(ctx context.Context) ([]engine.Tenant, error) {
	ctx, cancel := context.WithTimeout(ctx, r.tuning.Query)
	defer cancel()
	return r.store.Tenants(ctx, r.config.Tenants)
}

// checkTenants returns an error if the store was not migrated, was moved, or has no tenant of that name, since retries
// would not help.
func (r *Runtime) checkTenants(ctx context.Context) error {
	all, err := r.tenants(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.tuning.Query)
	defer cancel()
	if err := r.store.Runnable(ctx); err != nil {
		return err
	}
	for _, name := range r.config.Tenants {
		if !slices.ContainsFunc(all, func(t engine.Tenant) bool { return t.Name == name }) {
			return fmt.Errorf("tenant %q: %w", name, tenancy.ErrUnknown)
		}
	}
	return nil
}
