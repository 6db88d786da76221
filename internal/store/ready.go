package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	readyRetryMin = 100 * time.Millisecond
	readyRetryMax = 5 * time.Second
)

// WaitReady waits until the store answers, so that what depends on it may start
// before it. It logs the first failure and then every tenth.
func WaitReady(ctx context.Context, s Store, log *slog.Logger) error {
	retry := readyRetryMin
	for attempt := 0; ; attempt++ {
		_, err := s.Ping(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return fmt.Errorf("wait for store: %w", err)
		}
		if attempt%10 == 0 {
			log.Warn("waiting for the store", "err", err)
		}
		sleep(ctx, retry)
		retry = min(2*retry, readyRetryMax)
	}
}
