package actors

import (
	"testing"
	"unsafe"
)

// A node has one of these for each projection. The limits are size classes of Go's allocator: one byte more takes the
// next class.
func TestWhatEachProjectionTakesFitsItsSizeClass(t *testing.T) {
	for name, s := range map[string]struct{ size, limit uintptr }{
		"projectionActor": {unsafe.Sizeof(projectionActor{}), 1024},
		"registered":      {unsafe.Sizeof(registered{}), 320},
		"recent":          {unsafe.Sizeof(recent{}), 64},
		"shell":           {unsafe.Sizeof(shell{}), 32},
	} {
		if s.size > s.limit {
			t.Errorf("%s takes %d bytes, want at most %d", name, s.size, s.limit)
		}
	}
}
