// Package inferencesimtest runs llm-d-inference-sim for tests: a server with the HTTP API and
// the KV events of vLLM that computes nothing, and that nobody here has written.
//
// Start with [Start]. The package is for tests only.
package inferencesimtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// Binary is the variable with the path of the simulator. A test fails if there is none at that
// path. Without the variable the simulator is looked for where "make inference-sim" puts it.
const Binary = "DYNCTL_INFERENCE_SIM"

// Model is the name of the served model, unless the flags have --model.
const Model = "sim-model"

// Server is a running simulator.
type Server struct {
	URL    string // http://127.0.0.1:PORT
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	log    string
}

// Start starts a simulator with flags beside --port and --model, and waits until it is ready.
// It ends with the test, or with the process of the tests. It skips the test if there is no
// simulator.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartAt(t, freePort(t), flags...)
}

// StartAt is [Start] for a port, as of a server that starts again.
func StartAt(t testing.TB, port int, flags ...string) *Server {
	t.Helper()
	s := &Server{
		URL:    fmt.Sprintf("http://127.0.0.1:%d", port),
		exited: make(chan struct{}),
		log:    filepath.Join(t.TempDir(), "inference-sim.log"),
	}
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if !slices.Contains(flags, "--model") {
		flags = append([]string{"--model", Model}, flags...)
	}
	s.cmd = exec.Command(binary(t), append([]string{"--port", fmt.Sprint(port)}, flags...)...) //nolint:gosec // the test's own
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1") // a part of the topic of its KV events
	if err := orphan.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ends is in its log
	}()
	t.Cleanup(s.Kill)
	s.await(t)
	return s
}

// await waits until the simulator is ready.
func (s *Server) await(t testing.TB) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for end := time.Now().Add(patience.Soon); ; time.Sleep(10 * time.Millisecond) {
		if healthy(t.Context(), client, s.URL) {
			return
		}
		select {
		case <-s.exited:
			t.Fatalf("llm-d-inference-sim has ended:\n%s", s.Log())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("llm-d-inference-sim is not ready:\n%s", s.Log())
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	return resp.StatusCode == http.StatusOK
}

// Kill kills the simulator and waits for its end.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.exited
}

// Log returns the last that the simulator has printed.
func (s *Server) Log() string {
	raw, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-4000):])
}

// binary finds the simulator.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv(Binary)
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s: %v", Binary, err)
		}
		return path
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	path = filepath.Join(cache, "dynctl-ci", "inference-sim")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs llm-d-inference-sim, which make inference-sim builds: %v", err)
	}
	return path
}

func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
