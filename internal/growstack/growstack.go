// Package growstack makes the stack of a goroutine large at once. A goroutine begins with 2 KiB. Whenever its stack is
// full, the runtime copies it to one of twice the size, and adjusts every frame, which costs least while there are few
// frames.
package growstack

// Grow makes the stack of the calling goroutine at least 16 KiB. That is enough for most batches, and the runtime has
// caches of stacks up to this size.
//
//go:noinline
func Grow() byte {
	var frame [10 << 10]byte
	return frame[index(&frame[0])]
}

// index keeps the compiler from removing the frame.
//
//go:noinline
func index(*byte) int { return 1 }
