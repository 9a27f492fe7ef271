//go:build !unix

package console

import "os"

// Resized returns a channel that receives nothing: here, the next frame has the new size.
func Resized() (resized <-chan os.Signal, stop func()) { return nil, func() {} }
