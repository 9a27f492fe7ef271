package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Detail is all that is known of one projection.
type Detail struct {
	// At is when it was read, by the clock of this process.
	At time.Time `json:"at"`
	// Status is that of all partitions together, if the ID names no partition: see Status.Projection.
	Status ProjectionStatus `json:"status"`
	// Tenures are the times in which nodes ran the projection, by partition, the newest first. What is not in the
	// database comes from the nodes: see Source. So the list has gaps, and an earlier epoch may be missing.
	Tenures []Tenure `json:"tenures"`
	// Batches are the last batches and deliveries that had events or failed, the newest first.
	Batches []Batch `json:"batches"`
	// Minutes describe the last hour, minute by minute and over all partitions, if the projection is in Summary.Worst.
	Minutes []Minute `json:"minutes"`
}

// Source is where a part of a Detail comes from.
type Source string

const (
	// SourceDatabase means that it is in the projection's row.
	SourceDatabase Source = "database"
	// SourceRuntime means that it comes from the memory of the runtime that was asked. It has the last 4 tenures and
	// the last 4 batches of each projection that it ran.
	SourceRuntime Source = "runtime"
	// SourceHeartbeat means that another node published it. A node publishes the last 10 tenures that began or ended
	// there, and the last 2 batches of each of the 10 projections that are the furthest behind there.
	SourceHeartbeat Source = "heartbeat"
)

// Tenure is a time in which a node ran a projection under one epoch of its lease.
type Tenure struct {
	Partition int    `json:"partition,omitzero"`
	Node      string `json:"node"`
	NodeName  string `json:"nodeName,omitempty"`
	Epoch     int64  `json:"epoch"`
	// Began and Ended are by the clock of the node. Began is zero if it is not known. Ended is zero while the tenure
	// goes on, and if it is not known.
	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`
	Source Source    `json:"source"`
}

// Batch is a batch or a delivery that ended.
type Batch struct {
	Partition int    `json:"partition,omitzero"`
	Node      string `json:"node"`
	// Ended is when it ended, by the clock of the node. Duration is how long it took after it got its slot.
	Ended    time.Time     `json:"ended"`
	Duration time.Duration `json:"duration"`
	// Events is how many events it had. Fault is the kind of its fault, as in package observe, and empty if all went
	// well.
	Events int    `json:"events"`
	Fault  string `json:"fault,omitempty"`
	Source Source `json:"source"`
}

// Detail returns all that is known of one projection. It returns projection.ErrUnknownProjection if there is none.
func (a *Admin) Detail(ctx context.Context, id projection.ID) (Detail, error) {
	d, err := a.detail(ctx, engine.FullID(id))
	if err != nil {
		return Detail{}, fmt.Errorf("detail of %s: %w", engine.FullID(id), err)
	}
	return d, nil
}

func (a *Admin) detail(ctx context.Context, id projection.ID) (Detail, error) {
	status, err := a.Status(ctx, StatusFilter{Tenants: []string{id.Tenant},
		Names: []string{id.Name}, Limit: statusMost})
	if err != nil {
		return Detail{}, err
	}
	status.Projections = slices.DeleteFunc(status.Projections,
		func(p ProjectionStatus) bool { return id.Partition != 0 && p.ID != id })
	if len(status.Projections) == 0 {
		return Detail{}, projection.ErrUnknownProjection
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	nodes, err := a.plane.Nodes(ctx)
	if err != nil {
		return Detail{}, err
	}
	here := a.waiter.Running()
	if here != nil {
		for i := range nodes {
			if nodes[i].ID == here.Node.ID {
				nodes[i].Summary = here.Registry.Summary()
			}
		}
	}
	d := Detail{At: status.At, Status: status.Projection(id), Tenures: make([]Tenure, 0), Batches: make([]Batch, 0)}
	minutes := make(minuteSums)
	for _, p := range status.Projections {
		d.describe(p, nodes, here, minutes)
	}
	slices.SortFunc(d.Tenures, func(a, b Tenure) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(b.Epoch, a.Epoch))
	})
	slices.SortFunc(d.Batches, func(a,
		b Batch) int {
		return cmp.Or(b.Ended.Compare(a.Ended), cmp.Compare(a.Partition, b.Partition))
	})
	d.Minutes = minutes.list()
	return d, nil
}

// describe adds what is known of a projection or partition. here is the runtime of this process, nil if none runs.
func (d *Detail) describe(p ProjectionStatus, nodes []engine.NodeRow, here *actors.Deps, minutes minuteSums) {
	for _, n := range nodes {
		if here != nil && here.Node.ID == n.ID {
			tenures, batches := here.Registry.Past(p.ID)
			d.add(n, p.ID, tenures, batches, SourceRuntime)
		} else if n.Summary != nil {
			d.add(n, p.ID, n.Summary.Tenures, batchesOf(n.Summary, p.ID), SourceHeartbeat)
		}
		if n.Summary == nil || n.Summary.Hour == nil {
			continue
		}
		for _, w := range n.Summary.Hour.Worst {
			if w.ID == p.ID {
				minutes.add(w.Series)
			}
		}
	}
	known := func(t Tenure) bool { return t.Partition == p.ID.Partition && t.Epoch == p.Epoch && t.Node == p.Owner }
	if p.Owner != "" && !slices.ContainsFunc(d.Tenures, known) {
		d.Tenures = append(d.Tenures, Tenure{Partition: p.ID.Partition,
			Node: p.Owner, NodeName: p.OwnerName, Epoch: p.Epoch, Source: SourceDatabase})
	}
}

// add adds what a node knows of a projection or partition.
func (d *Detail) add(n engine.NodeRow, id projection.ID, tenures []engine.Tenure, batches []engine.EndedBatch,
	from Source) {
	for _, t := range tenures {
		if t.ID == id {
			d.Tenures = append(d.Tenures, Tenure{Partition: id.Partition,
				Node: n.ID, NodeName: n.Name, Epoch: t.Epoch, Began: t.Began.UTC(), Ended: t.Ended.UTC(), Source: from})
		}
	}
	for _, b := range batches {
		d.Batches = append(d.Batches, Batch{Partition: id.Partition,
			Node: n.ID, Ended: b.Ended.UTC(), Duration: b.Took, Events: b.Events, Fault: b.Fault, Source: from})
	}
}

func batchesOf(s *engine.NodeSummary, id projection.ID) []engine.EndedBatch {
	for _, l := range s.Lagging {
		if l.ID == id {
			return l.Batches
		}
	}
	return nil
}
