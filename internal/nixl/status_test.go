package nixl

import (
	"errors"
	"fmt"
	"testing"
)

// Values and names are those of NIXL: logs and dashboards of both read alike.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		status Status
		value  int
		label  string
	}{
		{InProgress, 1, "in_progress"},
		{Success, 0, "success"},
		{ErrNotPosted, -1, "not_posted"},
		{ErrInvalidParam, -2, "invalid_param"},
		{ErrBackend, -3, "backend"},
		{ErrNotFound, -4, "not_found"},
		{ErrMismatch, -5, "mismatch"},
		{ErrNotAllowed, -6, "not_allowed"},
		{ErrRepostActive, -7, "repost_active"},
		{ErrUnknown, -8, "unknown"},
		{ErrNotSupported, -9, "not_supported"},
		{ErrRemoteDisconnect, -10, "remote_disconnect"},
		{ErrCanceled, -11, "canceled"},
		{ErrNoTelemetry, -12, "no_telemetry"},
	} {
		if int(c.status) != c.value || c.status.Label() != c.label || c.status.String() == fmt.Sprint("status ", c.value) {
			t.Errorf("%s: value %d, label %q; want %d, %q", c.status, int(c.status), c.status.Label(), c.value, c.label)
		}
		if c.value >= 0 {
			continue
		}
		if err := fmt.Errorf("wrapped: %w", c.status); !errors.Is(err, c.status) || StatusOf(err) != c.status {
			t.Errorf("%s is not found in %v", c.status, err)
		}
	}
	if StatusOf(nil) != Success || StatusOf(errors.New("x")) != ErrUnknown || Status(-13).Label() != "unknown" {
		t.Error("other errors")
	}
	for m, want := range map[MemType]string{DRAM: "DRAM", VRAM: "VRAM"} {
		if m.String() != want {
			t.Errorf("memory type %d is %s", m, m)
		}
	}
	if DRAM != 0 || VRAM != 1 || Read != 0 || Write != 1 {
		t.Error("memory types or operations have other values than NIXL's")
	}
}
