package guard

import (
	"strings"
	"sync"
)

const (
	// mostAdmitted is how many texts are remembered. Handlers have far fewer, unless they make up texts: then the
	// memory is emptied when it is full.
	mostAdmitted = 1024
	// longestAdmitted is the longest text that is remembered, in bytes.
	longestAdmitted = 4 << 10
)

// admitted are the texts that refuse accepted, of all transactions of the process. Examining a text in each transaction
// took a twelfth of the processor time of a batch of one event.
var admitted texts

// admittedQueued are those that AdmitQueued accepted.
var admittedQueued texts

// texts is a set of texts of limited size. It is safe for concurrent use.
type texts struct {
	mu  sync.RWMutex
	set map[string]struct{}
}

// admit returns why a text is refused, or nil. It examines a text once.
func (t *texts) admit(text string, examine func(text string) error) error {
	if t.has(text) {
		return nil
	}
	if err := examine(text); err != nil {
		return err
	}
	t.add(text)
	return nil
}

func (t *texts) has(text string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, has := t.set[text]
	return has
}

func (t *texts) add(text string) {
	if len(text) > longestAdmitted {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set == nil || len(t.set) >= mostAdmitted {
		t.set = make(map[string]struct{})
	}
	t.set[strings.Clone(text)] = struct{}{} // the text may be part of a long one
}
