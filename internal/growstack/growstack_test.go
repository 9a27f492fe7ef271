package growstack

import (
	"testing"
	"unsafe"
)

// use uses 1 KiB of stack for each level.
//
//go:noinline
func use(levels int) byte {
	var frame [1 << 10]byte
	if levels == 0 {
		return frame[index(&frame[0])]
	}
	return use(levels-1) + frame[index(&frame[0])]
}

// moves reports whether the stack of a new goroutine moves while a function uses 8 KiB of it.
func moves(first func() byte) bool {
	moved := make(chan bool)
	go func() {
		first()
		var local byte
		at := uintptr(unsafe.Pointer(&local))
		use(8)
		moved <- at != uintptr(unsafe.Pointer(&local))
	}()
	return <-moved
}

func TestGrownStackDoesNotMove(t *testing.T) {
	if moves(Grow) {
		t.Error("the stack grew after Grow")
	}
	if !moves(func() byte { return 0 }) {
		t.Error("a stack holds 8 KiB without Grow, so Grow is not needed")
	}
}
