//go:build unix

package console

import (
	"os"
	"os/signal"
	"syscall"
)

// Resized returns a channel that receives a value when the terminal has another size. stop ends that.
func Resized() (resized <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	return signals, func() { signal.Stop(signals) }
}
