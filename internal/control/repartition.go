package control

import (
	"cmp"
	"context"
	"sort"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Repartition replaces the partitions of a projection by n others in one transaction, and notifies the nodes. Each
// event is handled once, by an old or a new partition. Previous owners cannot commit any more. If the projection has n
// partitions, Repartition changes nothing. Its locks are those of Reset. In the end it ends the sessions in which
// batches of dead owners still run.
func (p Operations) Repartition(ctx context.Context, id projection.ID, n int) error {
	id = engine.FullID(id)
	err := p.change(ctx, id.Tenant, func(tx store.Tx) error { return repartition(tx, id, n) })
	return p.wrap(err, "split %s into %d partitions", id, n)
}

// repartition replaces the partitions of a projection, unless it has n.
func repartition(tx store.Tx, id projection.ID, n int) error {
	all, err := lockPartitions(tx, id.Tenant, id.Name)
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		return cmp.Or(Unknown(tx, id), projection.ErrUnknownProjection)
	case len(all) == n:
		return nil
	}
	old := all.old()
	slots, err := slotsOf(tx, id.Tenant, old.Attempted())
	if err != nil {
		return err
	}
	parts, err := old.Replace(n, slots)
	if err != nil {
		return err
	}
	if err := DiscardOf(tx, old.Rows()); err != nil {
		return err
	}
	r := replacement{
		tx: tx, old: old.Rows(), rows: make([]int32, len(parts)), slots: make([]partition.Range, len(parts)),
	}
	r.insert(parts)
	if err := r.moveAll(old.Owned(resplit.LivingOwner)); err != nil {
		return err
	}
	tx.Notify(engine.Notice{Control: true, Tenant: id.Tenant})
	if dead := old.Owned(resplit.DeadOwner); len(dead) > 0 {
		tx.EndBatches(dead...)
	}
	return nil
}

// slotsOf returns the slots of the events at these positions.
func slotsOf(v store.View, tenant string, positions []int64) (map[int64]int32, error) {
	if len(positions) == 0 {
		return nil, nil
	}
	slots := make(map[int64]int32)
	var position int64
	var slot int32
	err := v.Each("event_slots", []any{tenant, positions}, []any{&position, &slot}, func() error {
		slots[position] = slot
		return nil
	})
	return slots, err
}

// replacement is the replacement of the partitions of a projection in a transaction.
type replacement struct {
	tx  store.Tx
	old []int32
	// rows are those of the new partitions, which have these slots. The rows are set when the next statement is read.
	rows  []int32
	slots []partition.Range
}

// insert inserts the new partitions and their leases.
func (r *replacement) insert(parts []resplit.New) {
	r.tx.Exec("release_partition_numbers", r.old)
	for i, p := range parts {
		r.slots[i] = p.Range
		from, to, upto := make([]int32, 0, len(p.Passed)), make([]int32, 0, len(p.Passed)),
			make([]int64, 0, len(p.Passed))
		for _, passed := range p.Passed {
			from, to, upto = append(from, passed.From), append(to, passed.To), append(upto, passed.Position)
		}
		r.tx.Later("insert_partition", []any{r.old[0], p.Number, len(parts), p.From, p.To, from, to, upto, p.Skipped,
			p.Failing, p.Crashed, p.Halted, p.CrashAttempts}, &r.rows[i])
		r.tx.Exec("insert_lease", r.old[0], p.Number, p.Checkpoint, p.CrashCount)
	}
}

// moveAll moves what belongs to the old partitions, and deletes these. living are those with a living owner.
func (r *replacement) moveAll(living []int32) error {
	open, err := r.openReplays()
	if err != nil {
		return err
	}
	replays := resplit.Continue(open, r.slots)
	ids := make([]int64, len(replays))
	for i, c := range replays {
		r.tx.Later("continue_replay", []any{c.Root, r.rows[c.Part], c.Like, c.Stream, c.StreamOnly}, &ids[i])
	}
	letters, err := r.deadLetters()
	if err != nil {
		return err
	}
	streams, err := r.parkedStreams()
	if err != nil {
		return err
	}
	r.tx.Exec("end_living_replays", living)
	for part, row := range r.rows {
		if len(letters[part]) > 0 {
			r.tx.Exec("move_dead_letters", letters[part], row)
		}
		if len(streams[part]) > 0 {
			r.tx.Exec("move_parked_streams", r.old, streams[part], row)
		}
	}
	for _, m := range resplit.Marks(open, replays, ids) {
		r.mark(m)
	}
	r.tx.Exec("move_commands", r.old, r.rows[0])
	r.tx.Exec("count_parked", r.rows)
	r.tx.Exec("delete_partition_leases", r.old)
	r.tx.Exec("delete_partitions", r.old)
	return nil
}

// openReplays returns the open replays of the old partitions.
func (r *replacement) openReplays() (open []resplit.Replay, err error) {
	var o resplit.Replay
	err = r.tx.Each("open_replays", []any{r.old}, []any{&o.ID, &o.Root, &o.From, &o.To, &o.Stream, &o.StreamOnly},
		func() error {
			open = append(open, o)
			return nil
		})
	return open, err
}

// deadLetters returns the dead letters of the old partitions, by the new partition that has their stream.
func (r *replacement) deadLetters() ([][]int64, error) {
	letters := make([][]int64, len(r.rows))
	var id int64
	var stream string
	err := r.tx.Each("dead_letter_streams", []any{r.old}, []any{&id, &stream}, func() error {
		part := r.partOf(stream)
		letters[part] = append(letters[part], id)
		return nil
	})
	return letters, err
}

// parkedStreams returns the parked streams of the old partitions, by the new partition that has them.
func (r *replacement) parkedStreams() ([][]string, error) {
	streams := make([][]string, len(r.rows))
	parked, err := column[string](r.tx, "parked_streams_of_partitions", r.old)
	for _, stream := range parked {
		part := r.partOf(stream)
		streams[part] = append(streams[part], stream)
	}
	return streams, err
}

// partOf returns the index of the new partition that has a stream.
func (r *replacement) partOf(stream string) int {
	slot := partition.Slot(stream)
	return sort.Search(len(r.slots), func(i int) bool { return r.slots[i].To > slot })
}

func (r *replacement) mark(m resplit.Mark) {
	row := r.rows[m.Part]
	if m.Stream != nil {
		r.tx.Exec("mark_stream_tried", row, *m.Stream, m.Before, m.After)
		return
	}
	r.tx.Exec("mark_streams_tried", row, m.Before, m.After)
	r.tx.Exec("mark_dead_letters_tried", row, m.Before, m.After)
}
