package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/model/minitok"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	if secret := os.Getenv(farEnv); secret != "" {
		if err := runFarSide(secret); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	testModel   = "tiny"
	testDigest  = "sha256:tiny"
	testContext = 512
	testBlock   = 16
)

// testFiles are the files of the test model: every byte of a text is one token.
var testFiles = sync.OnceValue(func() map[string][]byte {
	tok, err := minitok.Load(minitok.MinVocab)
	if err != nil {
		panic(err)
	}
	files, err := tok.Files(testContext)
	if err != nil {
		panic(err)
	}
	return files
})

var testProcessor = sync.OnceValue(func() *chat.Processor {
	p, err := chat.Load(testFiles())
	if err != nil {
		panic(err)
	}
	return p
})

// tokens are the ids of a text.
func tokens(text string) []uint32 { return testProcessor().EncodePrompt(text) }

// world is a cluster in one process with frontends and workers.
type world struct {
	t   testing.TB
	c   *runtimetest.Cluster
	log *logBook
	// network, if set, puts another request plane into the configuration of runtimes.
	network func(*runtime.Config)
}

// runtime makes a runtime; change may be nil.
func (w *world) runtime(name string, change func(*runtime.Config)) *runtime.DistributedRuntime {
	w.t.Helper()
	return w.c.Runtime(w.t, name, func(c *runtime.Config) {
		if w.network != nil {
			w.network(c)
		}
		if change != nil {
			change(c)
		}
	})
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, c: runtimetest.New(t), log: &logBook{}}
	w.c.Log = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		if t.Failed() && testing.Verbose() {
			t.Logf("log:\n%s", w.log.String())
		}
	})
	return w
}

// logBook keeps what is logged.
type logBook struct{ patience.Buffer }

// count returns how many lines contain a text.
func (l *logBook) count(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// front is a frontend that runs.
type front struct {
	*Frontend
	t      testing.TB
	client *http.Client
	cancel context.CancelFunc
	once   sync.Once
	ended  chan error
	err    error
}

// settings are settings that nobody changes.
func settings(policy string) func() Settings {
	return func() Settings { return Settings{Policy: policy, RemoteTimeout: 10 * time.Second, RecordLoad: true} }
}

// frontend runs a frontend and stops it when the test ends.
func (w *world) frontend(changes ...func(*Frontend)) *front {
	return w.configured(nil, changes...)
}

func (w *world) configured(configure func(*Config), changes ...func(*Frontend)) *front {
	w.t.Helper()
	cfg := Config{
		Runtime: w.runtime("node-1", nil), Node: "node-1", Host: "127.0.0.1", BodyLimit: 1 << 20, MigrationLimit: 3,
		Settings: settings("least-loaded"), Metrics: metrics.NewRegistry(), Log: w.c.Log,
	}
	if configure != nil {
		configure(&cfg)
	}
	f, err := New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	f.limits.takeover, f.limits.forgive, f.limits.poll = 2*time.Second, 50*time.Millisecond, 5*time.Millisecond
	f.limits.retry, f.limits.successor = 10*time.Millisecond, 0
	for _, change := range changes {
		change(f)
	}
	fr := &front{Frontend: f, t: w.t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	fr.cancel = cancel
	go func() { fr.ended <- f.Run(ctx) }()
	w.t.Cleanup(func() {
		if err := fr.stop(); err != nil {
			w.t.Errorf("frontend: %v", err)
		}
		fr.client.CloseIdleConnections()
	})
	return fr
}

// stop ends the frontend and returns what Run returned.
func (f *front) stop() error {
	f.once.Do(func() {
		f.cancel()
		select {
		case f.err = <-f.ended:
		case <-time.After(2 * patience.Soon):
			f.err = errors.New("Run did not end")
		}
	})
	return f.err
}

// waitModel waits until the frontend serves the model and routes to n workers.
func (f *front) waitModel(n int) *front {
	f.t.Helper()
	patience.Until(f.t, "the model is served", func() bool {
		m := f.registry.find(testModel)
		if m == nil || !m.ready() {
			return false
		}
		have := 0
		for _, inst := range f.workers.Instances() {
			if m.has(inst.InstanceID) {
				have++
			}
		}
		return have == n
	})
	return f
}

// closed closes a frontend.
func closed(t *testing.T, f *Frontend) {
	t.Helper()
	over := make(chan struct{})
	go func() { f.Close(); close(over) }()
	select {
	case <-over:
	case <-time.After(patience.Soon):
		t.Fatal("Close does not return")
	}
}

// metric returns the value of a series in the metrics, -1 if there is none.
func (f *front) metric(series string) float64 {
	f.t.Helper()
	_, all := f.get("/metrics")
	for line := range strings.Lines(all) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var v float64
			if err := json.Unmarshal([]byte(strings.TrimSpace(rest)), &v); err != nil {
				f.t.Fatalf("%s: %v", line, err)
			}
			return v
		}
	}
	return -1
}
