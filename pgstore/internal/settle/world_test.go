package settle

import (
	"fmt"
	"slices"
)

// pick chooses a number from 0 to n-1. All that is random in the model comes through it.
type pick func(n int) int

// world is a naive model of a database with one events table: who holds the lock, which numbers were drawn, which rows
// are visible. Everything that PostgreSQL does in more than one step is more than one step here.
type world struct {
	last    int64 // the sequence
	flushed int64 // what a crash cannot take back of it
	visible []int64
	open    []*worldTx
	nextTx  int
	nextXID int
	scan    *worldScan
	// answered has the positions of committed transactions whose clients know of the commit, and that were not handed
	// over.
	answered [][]int64
	// appeared is called with every row that becomes visible.
	appeared func(position int64) error
}

// worldTx is a transaction. It holds the lock before it draws and until after its rows are visible.
type worldTx struct {
	name     string
	locked   bool
	drawn    []int64
	saved    bool // there is a savepoint
	savedAt  int  // how much was drawn before it
	savedOff bool // the lock was not held before it
	prepared bool
	kept     bool // it was committed
	ended    bool // its rows are visible or gone, and it still holds the lock
}

// worldScan is a scan of the locks, which takes some time. It finds the transactions in must, which hold the lock
// during the whole scan. It may find those in may, which hold it during a part of the scan.
type worldScan struct{ must, may []*worldTx }

func newWorld() *world { return &world{nextXID: 700} }

func (w *world) head() int64 {
	if len(w.visible) == 0 {
		return 0
	}
	return w.visible[len(w.visible)-1]
}

// beyond returns the visible positions after mark, at most limit, and whether these are all.
func (w *world) beyond(mark int64, limit int) (positions []int64, complete bool) {
	from, _ := slices.BinarySearch(w.visible, mark+1)
	rest := w.visible[from:]
	if len(rest) < limit {
		return slices.Clone(rest), true
	}
	return slices.Clone(rest[:limit]), false
}

func (w *world) beginScan() {
	w.scan = &worldScan{}
	for _, tx := range w.open {
		if tx.locked {
			w.scan.must = append(w.scan.must, tx)
		}
	}
}

func (w *world) endScan(pick pick) []*worldTx {
	found := w.scan.must
	for _, tx := range w.scan.may {
		if pick(2) == 0 && !slices.Contains(found, tx) {
			found = append(found, tx)
		}
	}
	w.scan = nil
	return found
}

func (w *world) lock(tx *worldTx) {
	tx.locked = true
	if w.scan != nil {
		w.scan.may = append(w.scan.may, tx)
	}
}

func (w *world) unlock(tx *worldTx) {
	tx.locked = false
	if w.scan == nil {
		return
	}
	if i := slices.Index(w.scan.must, tx); i >= 0 {
		w.scan.must = slices.Delete(w.scan.must, i, i+1)
		w.scan.may = append(w.scan.may, tx)
	}
}

// step takes one random step.
func (w *world) step(pick pick) error {
	if len(w.open) == 0 || len(w.open) < 5 && pick(6) == 0 {
		w.nextTx++
		w.open = append(w.open, &worldTx{name: fmt.Sprintf("3/%d", w.nextTx)})
		return nil
	}
	if pick(40) == 0 {
		w.restart(pick)
		return nil
	}
	tx := w.open[pick(len(w.open))]
	if tx.ended {
		w.leave(tx)
		return nil
	}
	if tx.prepared {
		return w.end(tx, pick(2) == 0)
	}
	switch action := pick(12); {
	case action < 6:
		w.draw(tx, 1+pick(3))
	case action == 6:
		tx.saved, tx.savedAt, tx.savedOff = true, len(tx.drawn), !tx.locked
	case action == 7 && tx.saved:
		tx.drawn, tx.saved = tx.drawn[:tx.savedAt], false
		if tx.savedOff && tx.locked {
			w.unlock(tx)
		}
	case action == 8:
		tx.prepared, w.flushed = true, w.last
	case action == 9:
		return w.end(tx, false)
	default:
		return w.end(tx, true)
	}
	return nil
}

// draw takes the lock, and in a later step the numbers: both are the same statement.
func (w *world) draw(tx *worldTx, n int) {
	if !tx.locked {
		w.lock(tx)
		return
	}
	for range n {
		w.last++
		tx.drawn = append(tx.drawn, w.last)
	}
}

// end makes the rows visible or drops them. The lock is released later.
func (w *world) end(tx *worldTx, commit bool) error {
	tx.ended = true
	if !commit {
		return nil
	}
	w.flushed, tx.kept = w.last, true
	for _, p := range tx.drawn {
		i, found := slices.BinarySearch(w.visible, p)
		if found {
			return fmt.Errorf("the model is wrong: position %d is there twice", p)
		}
		w.visible = slices.Insert(w.visible, i, p)
		if err := w.appeared(p); err != nil {
			return err
		}
	}
	return nil
}

// leave releases the lock of a transaction that has ended.
func (w *world) leave(tx *worldTx) {
	if tx.locked {
		w.unlock(tx)
	}
	if tx.kept && len(tx.drawn) > 0 {
		w.answered = append(w.answered, tx.drawn)
	}
	w.open = slices.DeleteFunc(w.open, func(o *worldTx) bool { return o == tx })
}

// restart ends all transactions that are not prepared, and renames those that are. The numbering of transaction ids
// starts again. A crash may undo draws of positions after the last commit, or leave out some positions.
func (w *world) restart(pick pick) {
	w.scan = nil
	var kept []*worldTx
	for _, tx := range w.open {
		if tx.prepared && !tx.ended {
			w.nextXID++
			tx.name = fmt.Sprintf("%s%d", restoredPrefix, w.nextXID)
			kept = append(kept, tx)
		}
	}
	w.open, w.nextTx = kept, 0
	w.last = w.flushed + int64(pick(int(w.last-w.flushed)+3))
	w.flushed = w.last
}
