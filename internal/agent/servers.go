package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/embedded"
)

const (
	// serverRetry and serverRetryMax bound the pauses before a failed server of this
	// process is restarted.
	serverRetry    = time.Second
	serverRetryMax = 15 * time.Second
	// serverStart bounds one start.
	serverStart = 30 * time.Second
)

// server is an etcd or NATS server in this process.
type server interface {
	Done() <-chan struct{}
	Err() error
	Close() error
}

// keepServer restarts a server whenever it fails, for example because the disk is full.
// Meanwhile the node serves with the state it knows, as it does when an external server
// is down. The returned function stops the server.
func keepServer[S server](log *slog.Logger, al *alarms, name string, s S, start func(context.Context) (S, error)) (end func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keepServing(ctx, log.With("server", name), al, name, s, start) }()
	return func(context.Context) error {
		cancel()
		return <-ended // each server bounds its own stop
	}
}

func keepServing[S server](ctx context.Context, log *slog.Logger, al *alarms, name string, s S, start func(context.Context) (S, error)) error {
	wait := serverRetry
	for {
		up := time.Now()
		select {
		case <-ctx.Done():
			return s.Close()
		case <-s.Done():
		}
		if time.Since(up) > serverRetryMax { // after a shorter time the back-off continues: it fails repeatedly
			wait = serverRetry
		}
		al.raise(name, fmt.Sprintf("the embedded %s failed; requests are still served while it restarts: %v", name, s.Err()))
		if err := s.Close(); err != nil {
			log.Warn("cannot close the failed server yet", "error", err)
		}
		began, noSpace := time.Now(), false
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
			wait = min(2*wait, serverRetryMax)
			limited, cancel := context.WithTimeout(ctx, serverStart)
			next, err := start(limited)
			cancel()
			if err == nil {
				s = next
				al.clear(name)
				log.Info("the embedded server runs again", "down", time.Since(began).Round(time.Millisecond))
				break
			}
			// Free space is checked often. That costs nothing, and an operator who makes
			// room wants the server back.
			if errors.Is(err, embedded.ErrNoSpace) {
				wait = serverRetry
				if noSpace {
					continue // already reported
				}
			}
			noSpace = errors.Is(err, embedded.ErrNoSpace)
			log.Warn("the embedded server does not start yet", "error", err)
		}
	}
}
