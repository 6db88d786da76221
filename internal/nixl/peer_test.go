package nixl

import (
	"fmt"
	"log/slog"
	"testing"
)

// A peer that takes its leave, as at each restart, is no reason to warn; one that is lost is.
func TestLeavesAreNoWarnings(t *testing.T) {
	for _, tc := range []struct {
		cause error
		level slog.Level
	}{
		{fmt.Errorf("peer closed the connection: %w", ErrRemoteClosed), slog.LevelInfo},
		{ErrRemoteDisconnect, slog.LevelWarn},
	} {
		if level := loss(tc.cause); level != tc.level {
			t.Errorf("%v: %s", tc.cause, level)
		}
	}
	if StatusOf(ErrRemoteClosed) != ErrRemoteDisconnect {
		t.Errorf("status %s", StatusOf(ErrRemoteClosed))
	}
}
