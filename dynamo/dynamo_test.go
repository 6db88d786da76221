package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/dynamo"
)

func local(t *testing.T) *dynamo.Local {
	t.Helper()
	l := dynamo.NewLocal()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func join(t *testing.T, l *dynamo.Local, opts ...dynamo.Option) *dynamo.Runtime {
	t.Helper()
	r, err := l.Connect(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func endpoint(t *testing.T, r *dynamo.Runtime, name string) *dynamo.Endpoint {
	t.Helper()
	e, err := r.Endpoint(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func serve(t *testing.T, r *dynamo.Runtime, name string, h dynamo.Handler, opts ...dynamo.ServeOption) *dynamo.Served {
	t.Helper()
	s, err := endpoint(t, r, name).Serve(t.Context(), h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func follow(t *testing.T, r *dynamo.Runtime, name string, n int) *dynamo.Client {
	t.Helper()
	c, err := endpoint(t, r, name).Client(t.Context(), dynamo.RoundRobin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Wait(ctx, n); err != nil {
		t.Fatal(err)
	}
	return c
}

func names(name string) dynamo.Handler {
	return func(_ context.Context, _ *dynamo.Request, send func(any) error) error { return send(name) }
}

func TestInstances(t *testing.T) {
	l := local(t)
	const name = "dyn://dynamo.backend.generate"
	a, b := join(t, l, dynamo.WithName("a")), join(t, l, dynamo.WithName("b"))
	serve(t, a, name, names("a"))
	sb := serve(t, b, name, names("b"))
	c := follow(t, b, name, 2)
	all := c.Instances()
	if len(all) != 2 || all[0].Endpoint != name {
		t.Fatalf("instances: %+v", all)
	}
	for _, r := range []struct {
		r    *dynamo.Runtime
		name string
	}{{a, "a"}, {b, "b"}} {
		if !slices.ContainsFunc(all, func(i dynamo.Instance) bool {
			return i.ID == r.r.ID() && i.Endpoint == name && i.Name == r.name && strings.HasSuffix(i.Address, fmt.Sprintf("/%x/generate", i.ID))
		}) {
			t.Errorf("%s is not among %+v", r.name, all)
		}
		for range 3 {
			if got, err := dynamo.Ask[string](t.Context(), c, nil, dynamo.To(r.r.ID())); got != r.name || err != nil {
				t.Errorf("call of %s: %q %v", r.name, got, err)
			}
		}
	}
	if _, err := dynamo.Ask[string](t.Context(), c, nil, dynamo.To(77)); !errors.Is(err, dynamo.ErrNoInstance) {
		t.Errorf("nobody's id: %v", err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	for len(c.Instances()) != 1 {
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatalf("instances: %+v", c.Instances())
		}
	}
	for range 2 {
		if got, err := dynamo.Ask[string](t.Context(), c, nil); got != "a" || err != nil {
			t.Errorf("the one that is left: %q %v", got, err)
		}
	}
	for _, bad := range []string{"", "generate", "a.b", "dyn://A.b.c"} {
		if _, err := a.Endpoint(bad); err == nil {
			t.Errorf("%q names an endpoint", bad)
		}
	}
}

func TestErrorsOfHandlers(t *testing.T) {
	l := local(t)
	r := join(t, l)
	serve(t, r, "a.b.wraps", func(context.Context, *dynamo.Request, func(any) error) error {
		return errors.Join(errors.New("no"), dynamo.Errorf(dynamo.Overloaded, "%d wait", 9))
	})
	serve(t, r, "a.b.plain", func(context.Context, *dynamo.Request, func(any) error) error { return errors.New("disk full") })
	serve(t, r, "a.b.empty", func(context.Context, *dynamo.Request, func(any) error) error { return nil })
	serve(t, r, "a.b.number", dynamo.Unary(func(_ context.Context, n int) (int, error) { return n + 1, nil }))
	serve(t, r, "a.b.header", func(_ context.Context, r *dynamo.Request, send func(any) error) error {
		return send(r.ID + r.Headers["x"])
	})
	for name, want := range map[string]dynamo.Error{
		"wraps": {Kind: dynamo.Overloaded, Message: "9 wait"}, "plain": {Kind: dynamo.Internal, Message: "disk full"},
	} {
		_, err := dynamo.Ask[string](t.Context(), follow(t, r, "a.b."+name, 1), nil)
		if e := (*dynamo.Error)(nil); !errors.As(err, &e) || *e != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := dynamo.Ask[string](t.Context(), follow(t, r, "a.b.empty", 1), nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty answer: %v", err)
	}
	number := follow(t, r, "a.b.number", 1)
	if n, err := dynamo.Ask[int](t.Context(), number, 41); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	_, err := dynamo.Ask[int](t.Context(), number, "text")
	if e := (*dynamo.Error)(nil); !errors.As(err, &e) || e.Kind != dynamo.InvalidArgument {
		t.Errorf("a body of another type: %v", err)
	}
	if s, err := dynamo.Ask[string](t.Context(), follow(t, r, "a.b.header", 1), nil, dynamo.WithRequestID("r1"), dynamo.WithHeader("x", "y")); s != "r1y" || err != nil {
		t.Errorf("got %q, %v", s, err)
	}
	if _, err := dynamo.Ask[string](t.Context(), follow(t, r, "a.b.nobody", 0), nil); !errors.Is(err, dynamo.ErrNoInstance) {
		t.Errorf("nobody serves it: %v", err)
	}
	if _, err := endpoint(t, r, "a.b.nil").Serve(t.Context(), nil); err == nil {
		t.Error("no handler was accepted")
	}
}

// Who leaves a loop, and whose context ends, has the handler stop.
func TestCallsEndAtTheHandler(t *testing.T) {
	r := join(t, local(t))
	ended := make(chan struct{}, 1)
	serve(t, r, "a.b.count", dynamo.Stream(func(ctx context.Context, n int, send func(int) error) error {
		defer func() { ended <- struct{}{} }()
		for i := range n {
			if err := send(i); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}))
	c := follow(t, r, "a.b.count", 1)
	for i, err := range dynamo.Call[int](t.Context(), c, 5) {
		if err != nil || i > 2 {
			t.Fatal(i, err)
		}
		if i == 2 {
			break
		}
	}
	<-ended
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	got := 0
	for i, err := range dynamo.Call[int](ctx, c, 3) {
		if last = err; err == nil {
			if got++; i == 2 {
				cancel()
			}
		}
	}
	if got != 3 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d items, then %v", got, last)
	}
	<-ended
	cancel()
}

func TestEvents(t *testing.T) {
	l := local(t)
	a, b := join(t, l, dynamo.WithNamespace("east")), join(t, l, dynamo.WithNamespace("east"))
	elsewhere := join(t, l)
	got := make(chan string, 10)
	s, err := b.Subscribe(t.Context(), "backend", "*", func(e dynamo.Event) {
		var text string
		if err := e.Decode(&text); err != nil || e.Missed != 0 || time.Since(e.PublishedAt) > time.Hour {
			t.Errorf("%+v: %v", e, err)
		}
		got <- e.Topic + "=" + text
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*dynamo.Runtime{elsewhere, a} {
		for _, topic := range []string{"load", "state"} {
			if err := r.Publish(t.Context(), "backend", topic, r.Namespace()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if one, two := <-got, <-got; one != "load=east" || two != "state=east" {
		t.Errorf("got %s and %s", one, two)
	}
	if s.Missed() != 0 {
		t.Errorf("%d missed", s.Missed())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][2]string{{"a.b", "load"}, {"*", "load"}, {"backend", "*"}, {"backend", ">"}, {"backend", "a b"}} {
		if err := a.Publish(t.Context(), bad[0], bad[1], 1); err == nil {
			t.Errorf("published to %v", bad)
		}
	}
	if _, err := a.Subscribe(t.Context(), "backend", ">", func(dynamo.Event) {}); err == nil {
		t.Error("subscribed to >")
	}
}

func TestHealth(t *testing.T) {
	r := join(t, local(t))
	serve(t, r, "a.b.fine", names("x"))
	fails := serve(t, r, "a.b.fails", func(context.Context, *dynamo.Request, func(any) error) error { return errors.New("out of memory") },
		dynamo.WithCanary(nil, time.Hour, time.Second))
	look := func() (int, map[string]any) {
		w := httptest.NewRecorder()
		r.HealthHandler().ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		return w.Code, body
	}
	deadline := time.Now().Add(time.Minute)
	code, body := look()
	for ; !strings.Contains(body["endpoints"].(map[string]any)["dyn://a.b.fails"].(string), "out of memory"); code, body = look() {
		if time.Now().After(deadline) {
			t.Fatalf("%d %v", code, body)
		}
		time.Sleep(time.Millisecond)
	}
	if code != 503 || body["status"] != "notready" || body["endpoints"].(map[string]any)["dyn://a.b.fine"] != "ready" {
		t.Errorf("%d %v", code, body)
	}
	if err := fails.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, body := look(); code != 200 || body["status"] != "ready" {
		t.Errorf("without it: %d %v", code, body)
	}
}
