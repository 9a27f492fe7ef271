package commandline

import (
	"context"
	"strings"
	"sync"
	"testing"
)

// watching is a running projections watch, without a terminal.
type watching struct {
	t *testing.T

	mu    sync.Mutex
	frame string
}

// watch starts projections watch. stop interrupts it, and checks its exit status.
func (p place) watch(t *testing.T) (w *watching, stop func()) {
	t.Helper()
	w = &watching{t: t}
	ctx, interrupt := context.WithCancel(context.WithoutCancel(t.Context()))
	ended, errs := make(chan int, 1), new(lockedBuffer)
	go func() {
		ended <- execute(ctx, append([]string{"projections", "watch", "--interval", "50ms"}, p.flags...), Options{},
			strings.NewReader(""), w, errs)
	}()
	stop = sync.OnceFunc(func() {
		interrupt()
		if status := <-ended; status != done || errs.String() != "" {
			t.Errorf("projections watch: status %d: %s", status, errs.String())
		}
	})
	t.Cleanup(stop)
	return w, stop
}

// Write receives a frame, which is written at once.
func (w *watching) Write(frame []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frame = string(frame)
	return len(frame), nil
}

// shows waits until the rows of a frame begin with these texts, and returns the part of the frame about projections.
// Spaces of any number are equal.
func (w *watching) shows(rows ...string) (text string) {
	w.t.Helper()
	eventually(w.t, "the watch shows "+strings.Join(rows, "; "), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, text, _ = strings.Cut(w.frame, "\n") // after the headline
		text, _, _ = strings.Cut(text, "\n\n")  // before the nodes
		lines := strings.Split(text, "\n")
		if len(lines) != len(rows)+1 {
			return false
		}
		for i, row := range rows {
			if !strings.HasPrefix(strings.Join(strings.Fields(lines[i+1]), " ")+" ", row+" ") {
				return false
			}
		}
		return true
	}, &text)
	return text + "\n"
}
