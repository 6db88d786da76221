package session

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupt is the cause of a context of [Signals] that ended by ctrl-c, which a
// command may take for less than the end of the program.
var ErrInterrupt = errors.New("interrupted by ctrl-c")

// ErrTerminated is the cause of one that ended by SIGTERM.
var ErrTerminated = errors.New("terminated by a signal")

// Signals returns a context that ends with the first SIGINT or SIGTERM. From then on
// the system handles signals by default again: a second ctrl-c ends the program
// at once. The context lasts as long as the process.
func Signals() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-c
		if s == os.Interrupt {
			end(ErrInterrupt)
		} else {
			end(ErrTerminated)
		}
		signal.Stop(c)
	}()
	return ctx
}
