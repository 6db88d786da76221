package agent

import (
	"io"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	cfg.Status.Profiles = true
	base := startAgent(t, cfg).node.StatusURL + "/debug/pprof/"
	const gzip = "\x1f\x8b"
	for _, tc := range []struct {
		path string
		code int
		want string // prefix of the body
	}{
		{"heap", http.StatusOK, gzip},
		{"goroutine?debug=1", http.StatusOK, "goroutine profile: total "},
		{"goroutine?debug=x", http.StatusOK, gzip},
		{"profile?seconds=1", http.StatusOK, gzip},
		{"profile?seconds=0", http.StatusBadRequest, "seconds: expected a number from 1 to 120"},
		{"profile?seconds=121", http.StatusBadRequest, "seconds: "},
		{"profile?seconds=many", http.StatusBadRequest, "seconds: "},
		{"symbols", http.StatusNotFound, "no such profile; use profile (CPU time), heap"},
	} {
		if code, body := get(t, base+tc.path); code != tc.code || !strings.HasPrefix(body, tc.want) {
			t.Errorf("%s: %d %.60q, want %d %q", tc.path, code, body, tc.code, tc.want)
		}
	}

	// There is one CPU profile at a time.
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	if code, body := get(t, base+"profile?seconds=1"); code != http.StatusConflict || !strings.Contains(body, "running already") {
		t.Errorf("a second one: %d %.60q", code, body)
	}
}
