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
		text  string
	}{
		{fmt.Errorf("peer closed the connection: %w", ErrRemoteClosed), slog.LevelInfo, "nixl peer left"},
		{ErrRemoteDisconnect, slog.LevelWarn, "nixl peer failed"},
	} {
		if level, text := loss(tc.cause); level != tc.level || text != tc.text {
			t.Errorf("%v: %s %q", tc.cause, level, text)
		}
	}
	if StatusOf(ErrRemoteClosed) != ErrRemoteDisconnect {
		t.Errorf("status %s", StatusOf(ErrRemoteClosed))
	}
}
