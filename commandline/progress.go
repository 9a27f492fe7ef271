package commandline

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/internal/console"
)

// progress shows on the standard error how far a command is, unless it is done soon.
type progress struct {
	view  *console.View
	every time.Duration

	mu    sync.Mutex
	next  time.Time
	shown bool
}

// quiet is how long a command runs before it shows progress.
const quiet = time.Second

func (c *cli) progress() *progress {
	view := console.NewView(c.errs)
	return &progress{view: view, every: view.Every(5 * time.Second), next: time.Now().Add(quiet)}
}

// show shows a line, but not too often.
func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.next) {
		p.next, p.shown = now.Add(p.every), true
		_ = p.view.Show(fmt.Sprintf(format, args...))
	}
}

// say prints a line that stays.
func (p *progress) say(text string) {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.view.Print(text)
}

// follow shows a line from time to time, also while nothing proceeds, until stop is called.
func (p *progress) follow(line func() string) (stop func()) {
	over := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(min(quiet, p.every))
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				p.show("%s", line())
			}
		}
	})
	return func() {
		close(over)
		group.Wait()
		p.end()
	}
}

// followCount follows a command on some projections, of which ended have ended.
func (p *progress) followCount(ended *atomic.Int64, all int) (stop func()) {
	return p.follow(func() string { return fmt.Sprintf("%d of %s", ended.Load(), plural(all, "projection")) })
}

// end removes the line from a terminal.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && p.view.IsTerminal() {
		_ = p.view.Show()
	}
}

// joined returns the errors as one, or nil.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
