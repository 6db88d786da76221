package attach

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node without a dynamod, and somebody who calls what is attached to it.
type node struct {
	t *testing.T
	*Services
	store  *store.Memory
	bus    events.Bus
	client requestplane.Client
}

func newNode(t *testing.T) *node {
	plane, bus := requestplane.NewMemory(), events.NewMemory()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	n := &node{t: t, store: store.NewMemory(nil), bus: bus.Join(), client: plane.NewClient()}
	server := plane.NewServer(requestplane.Limits{}, log)
	n.Services = New(Config{Runtime: runtime.Config{Store: n.store, Server: server, Client: n.client, Bus: n.bus, Node: "node-1", Log: log, Namespace: "dynamo"}, Bus: n.bus, Log: log})
	t.Cleanup(func() {
		if err := errors.Join(n.Close(context.Background()), server.Close(), n.client.Close(), n.bus.Close(), bus.Close(), n.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// call asks the endpoint for one answer.
func (n *node) call(name string, body any) (any, error) {
	e, err := cluster.ParseEndpoint(name)
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := runtime.NewClient(n.t.Context(), runtime.Config{Store: n.store, Client: n.client, Namespace: e.Namespace, Log: slog.New(slog.DiscardHandler)}, e.Component, e.Name)
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	b, err := c.Balance(runtime.Random)
	if err != nil {
		n.t.Fatal(err)
	}
	s, err := b.Call(n.t.Context(), "r1", nil, body)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var item any
	err = s.Recv(n.t.Context(), &item)
	return item, err
}

// instances counts those of an endpoint in discovery.
func (n *node) instances(name string) int {
	e, err := cluster.ParseEndpoint(name)
	if err != nil {
		n.t.Fatal(err)
	}
	kvs, _, err := n.store.List(n.t.Context(), e.Prefix())
	if err != nil {
		n.t.Fatal(err)
	}
	return len(kvs)
}

// published is what the node publishes of its only service.
func (n *node) published() cluster.Program {
	kvs, _, err := n.store.List(n.t.Context(), cluster.ProgramPrefix("dynamo"))
	if err != nil || len(kvs) != 1 {
		n.t.Fatalf("%d programs, %v", len(kvs), err)
	}
	p, err := store.DecodeJSON[cluster.Program](kvs[0])
	if err != nil || kvs[0].Lease == 0 || kvs[0].Lease != p.InstanceID {
		n.t.Fatalf("%+v under %s, %v", p, kvs[0].Lease, err)
	}
	return p
}

func (n *node) ready(id string) bool {
	for _, st := range n.List() {
		if st.ID == id {
			return st.Ready
		}
	}
	return false
}

// program is a service that can be made to fail.
type program struct {
	*httptest.Server
	absent  atomic.Bool   // it is not ready
	running chan struct{} // gets one for each request that waits
	release chan struct{} // lets one of them go
}

func newProgram(t *testing.T) *program {
	p := &program{running: make(chan struct{}, 10), release: make(chan struct{}, 10)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ready" && p.absent.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/wait":
			p.running <- struct{}{}
			select {
			case <-p.release:
			case <-r.Context().Done():
			}
			fallthrough
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, r.Body)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

const hello = "dyn://dynamo.backend.hello"

// A service is in discovery while it is ready, and no longer.
func TestServiceComesAndGoes(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	p.absent.Store(true)
	st, err := n.Attach(cluster.Service{Endpoint: "dynamo/backend/hello", URL: p.URL, ReadyURL: p.URL + "/ready"})
	if err != nil || st.Ready || st.Endpoint != hello || st.TTLSeconds != 30 {
		t.Fatalf("%+v %v", st, err)
	}
	patience.Until(t, "the reason is known", func() bool { return strings.Contains(n.List()[0].Reason, "503") })
	for range 2 {
		if n.instances(hello) != 0 {
			t.Error("it is in discovery, and not ready")
		}
		p.absent.Store(false)
		patience.Until(t, "the service is ready", func() bool { return n.ready(st.ID) })
		if item, err := n.call(hello, map[string]int64{"a": 1}); err != nil || fmt.Sprint(item) != "map[a:1]" {
			t.Errorf("%v %v", item, err)
		}
		patience.Until(t, "it is published as ready", func() bool { return n.published().State() == cluster.StateReady })
		if p := n.published(); p.Name != "attached-"+st.ID || p.Kind != cluster.ProgramService || p.Node != "node-1" || p.URL != st.URL {
			t.Errorf("published %+v", p)
		}
		p.absent.Store(true)
		patience.Until(t, "it is published as not ready", func() bool { return strings.Contains(n.published().Reason, "503") })
		patience.Until(t, "the service is out of discovery", func() bool { return n.instances(hello) == 0 })
		patience.Until(t, "the service is not ready", func() bool { return !n.ready(st.ID) })
	}
	p.absent.Store(false)
	patience.Until(t, "the service is back", func() bool { return n.ready(st.ID) && n.instances(hello) == 1 })
	if err := n.Detach(t.Context(), st.ID); err != nil || n.instances(hello) != 0 || len(n.List()) != 0 {
		t.Errorf("detached: %v, %d instances, %v", err, n.instances(hello), n.List())
	}
	if leases, err := n.store.Leases(t.Context()); err != nil || len(leases) != 0 {
		t.Errorf("leases %v, %v", leases, err)
	}
	if _, err := n.Renew(st.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("renewed: %v", err)
	}
	if err := n.Detach(t.Context(), st.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("detached again: %v", err)
	}
}

// One answer that it is not ready leaves a service in discovery, two in a row do not.
func TestServiceFailsOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if k := asked.Add(1); k == 2 || k == 4 || k == 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	n := newNode(t)
	st, err := n.Attach(cluster.Service{Endpoint: hello, URL: srv.URL, ReadyURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.get(st.ID)
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the service is ready", func() bool { return n.ready(st.ID) })
	_, changed := a.state()
	<-changed
	if st, _ := a.state(); st.Ready || asked.Load() < 5 || asked.Load() > 8 { // some time may have passed
		t.Errorf("after %d answers: %+v", asked.Load(), st)
	}
}

// A service of which nothing is heard leaves.
func TestServiceExpires(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	spec := cluster.Service{Endpoint: hello, URL: p.URL, TTLSeconds: 2}
	st, err := n.Attach(spec)
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the service is ready", func() bool { return n.ready(st.ID) })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		again, err := n.Attach(spec)
		if err != nil || again.ID != st.ID || !again.Ready {
			t.Fatalf("renewed: %+v %v", again, err)
		}
	}
	patience.Until(t, "the service is gone", func() bool { return len(n.List()) == 0 && n.instances(hello) == 0 })
}

// Requests that run when a service leaves end on their own.
func TestDetachDrains(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	st, err := n.Attach(cluster.Service{Endpoint: hello, URL: p.URL + "/wait"})
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the service is ready", func() bool { return n.ready(st.ID) })
	type outcome struct {
		item any
		err  error
	}
	called := make(chan outcome, 1)
	go func() {
		item, err := n.call(hello, "x")
		called <- outcome{item, err}
	}()
	<-p.running
	if n := n.List()[0].InFlight; n != 1 {
		t.Errorf("%d requests in flight", n)
	}
	detached := make(chan error, 1)
	go func() { detached <- n.Detach(context.Background(), st.ID) }()
	patience.Until(t, "the service is out of discovery", func() bool { return n.instances(hello) == 0 })
	if next, err := n.Attach(cluster.Service{Endpoint: hello, URL: p.URL + "/wait"}); err != nil || next.ID == st.ID {
		t.Errorf("its program's next run: %+v %v", next, err)
	}
	select {
	case err := <-detached:
		t.Errorf("detached with a request running: %v", err)
	default:
	}
	p.release <- struct{}{}
	if got := <-called; got.err != nil || got.item != "x" {
		t.Errorf("the request: %+v", got)
	}
	if err := <-detached; err != nil {
		t.Error(err)
	}
}

// A node that stops does not wait for requests forever.
func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	st, err := n.Attach(cluster.Service{Endpoint: hello, URL: p.URL + "/wait"})
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the service is ready", func() bool { return n.ready(st.ID) })
	called := make(chan error, 1)
	go func() {
		_, err := n.call(hello, "x")
		called <- err
	}()
	<-p.running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := n.Close(ctx); err != nil || time.Since(began) > drainLimit/2 {
		t.Errorf("closed after %s: %v", time.Since(began), err)
	}
	if _, err := n.Attach(cluster.Service{Endpoint: hello, URL: p.URL}); err == nil {
		t.Error("a stopping node takes services")
	}
	p.release <- struct{}{}
	<-called
}

func TestHold(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	body, err := requestplane.Encode(cluster.Service{Endpoint: hello, URL: p.URL, ReadyURL: p.URL + "/ready", TTLSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	var remote *requestplane.RemoteError
	err = n.Hold(t.Context(), &requestplane.Request{Body: body, Stranger: true}, func(any) error { return nil })
	if !errors.As(err, &remote) || remote.Kind != requestplane.KindInvalidArgument || len(n.List()) != 0 {
		t.Errorf("by a stranger: %v", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	states, held := make(chan cluster.ServiceState, 10), make(chan error, 1)
	go func() {
		held <- n.Hold(ctx, &requestplane.Request{Body: body}, func(item any) error {
			states <- item.(cluster.ServiceState)
			return nil
		})
	}()
	if st := <-states; !st.Ready || st.Instance == "" || st.TTLSeconds != 0 {
		t.Errorf("at first %+v", st)
	}
	if _, err := n.Attach(cluster.Service{Endpoint: hello, URL: p.URL}); !errors.Is(err, ErrTaken) {
		t.Errorf("attached beside: %v", err)
	}
	p.absent.Store(true)
	if st := <-states; st.Ready || !strings.Contains(st.Reason, "503") {
		t.Errorf("later %+v", st) // it also has outlived its TTL, which does not matter here
	}
	leave()
	if err := <-held; err != nil || len(n.List()) != 0 || n.instances(hello) != 0 {
		t.Errorf("at the end %v, %v", err, n.List())
	}
	// One that a node lets go of tells its caller.
	go func() {
		held <- n.Hold(t.Context(), &requestplane.Request{Body: body}, func(item any) error {
			states <- item.(cluster.ServiceState)
			return nil
		})
	}()
	<-states
	if err := n.Detach(t.Context(), n.List()[0].ID); err != nil {
		t.Error(err)
	}
	if err := <-held; !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("let go: %v", err)
	}
}

func TestAttachRefuses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	fine := cluster.Service{Endpoint: hello, URL: "http://127.0.0.1:1"}
	for name, change := range map[string]func(*cluster.Service){
		"nothing":       func(s *cluster.Service) { s.Endpoint = "" },
		"both":          func(s *cluster.Service) { s.Model = &cluster.ServiceModel{Name: "m"} },
		"no name":       func(s *cluster.Service) { s.Endpoint, s.Model = "", &cluster.ServiceModel{} },
		"half an name":  func(s *cluster.Service) { s.Endpoint = "backend" },
		"of dynamod":    func(s *cluster.Service) { s.Endpoint = "dyn://dynamo.agent.logs" },
		"of a frontend": func(s *cluster.Service) { s.Endpoint = "dyn://dynamo.frontend.http" },
		"a bad URL":     func(s *cluster.Service) { s.URL = "127.0.0.1:1" },
		"a long life":   func(s *cluster.Service) { s.TTLSeconds = 3601 },
		"a past life":   func(s *cluster.Service) { s.TTLSeconds = -1 },
	} {
		spec := fine
		change(&spec)
		if _, err := n.Attach(spec); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for i := range mostServices {
		if _, err := n.Attach(cluster.Service{Endpoint: hello, URL: fmt.Sprint("http://127.0.0.1:1/", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Attach(fine); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if _, err := n.Attach(cluster.Service{Endpoint: hello, URL: "http://127.0.0.1:1/0", TTLSeconds: 9}); !errors.Is(err, ErrTaken) {
		t.Errorf("one with other settings: %v", err)
	}
}

// api serves the API of a node.
func api(t *testing.T, n *node) (url, token string) {
	token = Token(handshake.NewKey([]byte("key")))
	mux := http.NewServeMux()
	n.Register(mux, token)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, token
}

func ask(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestAPI(t *testing.T) {
	t.Parallel()
	n, p := newNode(t), newProgram(t)
	url, token := api(t, n)
	spec := fmt.Sprintf(`{"endpoint":%q,"url":%q}`, hello, p.URL)
	if status, text := ask(t, "POST", url+Root, "wrong", spec); status != 401 || len(n.List()) != 0 {
		t.Errorf("a wrong token: %d %s", status, text)
	}
	status, text := ask(t, "POST", url+Root, token, spec)
	var st cluster.ServiceState
	if err := json.Unmarshal([]byte(text), &st); err != nil || status != 200 || st.ID == "" {
		t.Fatalf("attach: %d %s", status, text)
	}
	seen := make(chan events.Event, 1)
	sub, err := n.bus.Subscribe(t.Context(), events.Subject("dynamo", "backend", "news"), func(e events.Event) { seen <- e })
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "", "", 200, `"url":"` + p.URL},
		{"PUT", "/" + st.ID, "", 200, `"id":"` + st.ID},
		{"PUT", "/none", "", 404, "no such service"},
		{"POST", "", `{"endpoint":"x"}`, 400, "attach"},
		{"POST", "", `{"end":"x"}`, 400, "unknown field"},
		{"POST", "", `{"url":"` + strings.Repeat("x", maxSpec) + `"}`, 400, "too large"},
		{"POST", "", `{"endpoint":"` + hello + `","url":"` + p.URL + `","ttl_seconds":9}`, 409, "other settings"},
		{"POST", "/" + st.ID + "/events/news", `{"n":7587888160958627365}`, 200, "{}"},
		{"POST", "/" + st.ID + "/events/a.b", `{}`, 400, "topic"},
		{"POST", "/" + st.ID + "/events/news", `{`, 400, "no JSON"},
		{"POST", "/none/events/news", `{}`, 404, "no such service"},
		{"DELETE", "/" + st.ID, "", 200, "{}"},
		{"DELETE", "/" + st.ID, "", 404, "no such service"},
	} {
		if status, text := ask(t, tc.method, url+Root+tc.path, token, tc.body); status != tc.status || !strings.Contains(text, tc.says) {
			t.Errorf("%s %s: %d %s, want %d", tc.method, tc.path, status, text, tc.status)
		}
	}
	var event struct {
		N uint64 `json:"n"`
	}
	if e := <-seen; e.Decode(&event) != nil || event.N != 7587888160958627365 {
		t.Errorf("event %+v", event)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// A token that can be read on the way admits nobody.
func TestAPIFromElsewhere(t *testing.T) {
	for from, want := range map[string]int{"127.0.0.1:9": 200, "[::1]:9": 200, "10.0.0.1:9": 403, "x": 403, "10.0.0.1:9 by TLS": 200} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "GET", Root, http.NoBody)
		var secure bool
		if r.RemoteAddr, secure = strings.CutSuffix(from, " by TLS"); secure {
			r.TLS = &tls.ConnectionState{}
		}
		r.Header.Set("Authorization", "Bearer t")
		admit("t", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d", from, w.Code)
		}
	}
}

// The examples in Python join, answer, and leave when they are told to.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	n := newNode(t)
	url, token := api(t, n)
	start := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), python, name)
		cmd.Dir = filepath.Join("..", "..", "examples", "python")
		cmd.Env = append(os.Environ(), "DYNAMOD_STATUS="+url, "DYNAMOD_ATTACH_TOKEN="+token, "PYTHONDONTWRITEBYTECODE=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	hi, parrot := start("hello.py"), start("parrot.py")
	patience.Until(t, "both are ready", func() bool { l := n.List(); return len(l) == 2 && l[0].Ready && l[1].Ready })
	if item, err := n.call(hello, map[string]string{"name": "world"}); err != nil || fmt.Sprint(item) != "map[word:hello]" {
		t.Errorf("hello: %v %v", item, err)
	}
	if item, err := n.call(hello, map[string]string{}); err == nil || !strings.Contains(err.Error(), "KeyError") {
		t.Errorf("a request without a name: %v %v", item, err)
	}
	prompt := map[string]any{"token_ids": []int{104, 105}, "stop_conditions": map[string]int{"max_tokens": 1}}
	if item, err := n.call("dyn://dynamo.decode.generate", prompt); err != nil || !strings.Contains(fmt.Sprint(item), "token_ids") {
		t.Errorf("parrot: %v %v", item, err)
	}
	for _, cmd := range []*exec.Cmd{hi, parrot} {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("%s: %v", cmd.Args[1], err)
		}
	}
	if len(n.List()) != 0 {
		t.Errorf("left over: %+v", n.List())
	}
}
