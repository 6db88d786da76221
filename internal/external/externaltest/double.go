package externaltest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Options of a Double. Zero fields have defaults.
type Options struct {
	// Backend is whose server it is, one of cluster.ExternalBackends.
	Backend string
	// Role is what SGLang's and Mooncake's servers are started for; others take any.
	Role cluster.Role
	// Connector is how it exchanges KV, as in cluster.External; empty: the first of the
	// engine.
	Connector string
	Fabric    *Fabric // over which it exchanges KV; nil: one of its own
	Model     string  // "m"
	// Loras are adapters of Model.
	Loras []string
	// Next is the model; Hash(Vocab) if nil.
	Next  func(ids []uint32) uint32
	Vocab uint32 // 512
	EOS   uint32 // the model's own end token; 0: NoEOS
	Key   string // the API key that it asks for
	// Version is what it tells; empty: a recent one. Versions differ in what they have.
	Version string
	// Ranks is the number of data-parallel ranks in its metrics; 1.
	Ranks int
	// OldMetrics has it spell metrics as older releases do; NoMetrics has it have none.
	OldMetrics, NoMetrics bool
	// Simulator has it differ from vLLM as llm-d-inference-sim does: no /version, tokens
	// only on /inference/v1/generate.
	Simulator bool
	// Incremental has SGLang send only new tokens with each event.
	Incremental bool
	// NoHealth has it lack /health, as some servers with the OpenAI API do.
	NoHealth bool
	// Comments has it send comments and blank events between others.
	Comments bool
	// NoSleep has it lack what it is started with to be able to sleep; NoBackup has SGLang lack
	// what keeps its weights meanwhile.
	NoSleep, NoBackup bool
	// Encoder has vLLM encode for others and nothing else (--mm-encoder-only). Store has it keep
	// embeddings in a store that others read, and tell them nothing.
	Encoder, Store bool
	// Gate, if not nil, is asked before each token: it may wait until ctx ends.
	Gate func(ctx context.Context) error
}

// Failure is what a request to compute meets.
type Failure int

// The failures.
const (
	NoFailure  Failure = iota
	Internal           // status 500
	Busy               // status 503
	TooMany            // status 429
	Refuse             // status 400
	Cut                // the connection ends: in a stream, after the first token
	Stall              // nothing comes until the client leaves: in a stream, after the first token
	Garbage            // what comes is no JSON
	Endless            // an answer without an end, and without a line's end
	EchoKey            // status 400, with the request's headers in the message
	Redirect           // to another place
	ErrorEvent         // an error with status 200: in a stream, after the first token
)

// Seen is a request that a Double got.
type Seen struct {
	Path   string
	Header http.Header
	Body   []byte
}

// Double is a server. Its methods may be called concurrently with requests.
type Double struct {
	URL string

	o      Options
	fabric *Fabric
	server *httptest.Server
	boot   *httptest.Server // Mooncake's bootstrap server
	engine string           // its id at the fabric

	mu        sync.Mutex
	seen      []Seen
	fail      []Failure
	failFor   map[string]Failure
	cancelled int
	open      int // requests that are answered
	aborted   []string
	sleep     sleep
	running   map[string]bool // ids of requests
}

// New starts a server, which ends with the test.
func New(t testing.TB, o Options) *Double {
	t.Helper()
	d := newDouble(o)
	mux := http.NewServeMux()
	switch o.Backend {
	case cluster.BackendVLLM:
		d.vllm(mux)
	case cluster.BackendSGLang:
		d.sglang(mux)
	case cluster.BackendTensorRTLLM:
		d.trtllm(mux)
	case cluster.BackendOpenAI:
		d.openai(mux)
	default:
		t.Fatalf("no double of %q", o.Backend)
	}
	d.server = httptest.NewServer(d.guard(mux))
	d.URL = d.server.URL
	t.Cleanup(d.Close)
	return d
}

func newDouble(o Options) *Double {
	if o.Fabric == nil {
		o.Fabric = NewFabric()
	}
	if o.Vocab == 0 {
		o.Vocab = 512
	}
	if o.Next == nil {
		o.Next = Hash(o.Vocab)
	}
	if o.EOS == 0 {
		o.EOS = NoEOS
	}
	if o.Model == "" {
		o.Model = "m"
	}
	if o.Connector == "" && len(cluster.ExternalConnectors(o.Backend)) > 0 {
		o.Connector = cluster.ExternalConnectors(o.Backend)[0]
	}
	o.Ranks = max(o.Ranks, 1)
	return &Double{o: o, fabric: o.Fabric, engine: o.Fabric.name(), running: map[string]bool{}, failFor: map[string]Failure{}}
}

// Close ends the server and its connections.
func (d *Double) Close() {
	d.server.CloseClientConnections()
	d.server.Close()
	if d.boot != nil {
		d.boot.Close()
	}
}

// Fail has the next requests to compute meet failures, one each.
func (d *Double) Fail(f ...Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = append(d.fail, f...)
}

// FailFor has the next request to compute with an X-Request-Id meet a failure. That is for
// tests in which another request may still be on its way.
func (d *Double) FailFor(id string, f Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failFor[id] = f
}

// Saw reports whether it got a request to compute with an X-Request-Id.
func (d *Double) Saw(id string) bool {
	return slices.ContainsFunc(d.Seen(), func(s Seen) bool { return s.Header.Get("X-Request-Id") == id })
}

// failureOf returns the failure that a request meets. It needs mu.
func (d *Double) failureOf(r *http.Request) Failure {
	id := r.Header.Get("X-Request-Id")
	if f, ok := d.failFor[id]; ok {
		delete(d.failFor, id)
		return f
	}
	if len(d.fail) == 0 {
		return NoFailure
	}
	f := d.fail[0]
	d.fail = d.fail[1:]
	return f
}

// Seen returns the requests to compute that it got.
func (d *Double) Seen() []Seen {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

// Last returns the last request to compute that it got.
func (d *Double) Last(t testing.TB) Seen {
	t.Helper()
	seen := d.Seen()
	if len(seen) == 0 {
		t.Fatal("the server got no request")
	}
	return seen[len(seen)-1]
}

// Cancelled counts the requests that clients left before their end, and Aborted has the ids
// that they asked to abort.
func (d *Double) Cancelled() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cancelled
}

// Open counts the requests that it answers.
func (d *Double) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Aborted returns the ids of requests that clients asked to abort.
func (d *Double) Aborted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.aborted)
}

// guard asks for the API key where servers do.
func (d *Double) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := d.o.Backend == cluster.BackendVLLM && !strings.HasPrefix(r.URL.Path, "/v1") && !strings.HasPrefix(r.URL.Path, "/inference") || r.URL.Path == "/health"
		if d.o.Key != "" && !open && r.Header.Get("Authorization") != "Bearer "+d.o.Key {
			refuse(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxRequest bounds a request, in bytes.
const maxRequest = 32 << 20

// compute notes a request to compute, meets it with its failure, and has answer answer it.
func (d *Double) compute(answer func(c *call)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
		if err != nil {
			return
		}
		d.mu.Lock()
		d.seen = append(d.seen, Seen{r.URL.Path, r.Header.Clone(), body})
		d.open++
		f := d.failureOf(r)
		refusal := d.sleep.refusal()
		d.mu.Unlock()
		c := &call{d: d, w: w, r: r, body: body, failure: f}
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.open--
			if r.Context().Err() != nil && !c.complete {
				d.cancelled++
			}
		}()
		switch {
		case refusal != "":
			refuse(w, http.StatusServiceUnavailable, "%s", refusal)
		case c.failAtOnce():
		case json.Unmarshal(body, &c.fields) != nil:
			refuse(w, http.StatusBadRequest, "the body is not an object")
		default:
			answer(c)
		}
	}
}

// refuse answers with an error as servers of OpenAI's API do.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	reply(w, map[string]any{"error": map[string]any{"message": fmt.Sprintf(format, args...), "type": "BadRequestError", "code": status}})
}

// reply writes JSON.
func reply(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(b)
}

func (d *Double) get(mux *http.ServeMux, path string, v func() any) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply(w, v())
	})
}

// models lists the model and its adapters.
func (d *Double) models(length int) func() any {
	return func() any {
		entry := func(id string, parent any) map[string]any {
			m := map[string]any{"id": id, "object": "model", "root": "/models/" + d.o.Model, "parent": parent}
			if length > 0 {
				m["max_model_len"] = length
			}
			return m
		}
		list := []any{entry(d.o.Model, nil)}
		for _, l := range d.o.Loras {
			list = append(list, entry(l, d.o.Model))
		}
		return map[string]any{"object": "list", "data": list}
	}
}

// known reports whether the server serves a model.
func (d *Double) known(model string) bool {
	return model == d.o.Model || slices.Contains(d.o.Loras, model)
}

// patience bounds waits that only broken tests reach.
const patience = 30 * time.Second
