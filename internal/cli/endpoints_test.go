package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// offer serves an endpoint of a component "backend" beside a fake agent, under a lease of
// its own.
func (w *world) offer(a *fakeAgent, namespace, worker, endpoint string, h requestplane.Handler) *runtime.DistributedRuntime {
	w.t.Helper()
	d, err := runtime.New(w.t.Context(), runtime.Config{Store: w.store, Server: a.server, Namespace: namespace, Worker: worker, Node: a.node.ID})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = d.Close(context.Background()) })
	if _, err := d.Serve(w.t.Context(), "backend", endpoint, h); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// mirror answers the body it got, then the worker's name.
func mirror(name string) requestplane.Handler {
	return func(_ context.Context, r *requestplane.Request, send func(any) error) error {
		if len(r.Body) > 0 {
			if err := send(requestplane.Raw(r.Body)); err != nil {
				return err
			}
		}
		return send(map[string]any{"worker": name})
	}
}

func TestGetEndpoints(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	one := w.offer(a, w.ns, "worker-1", "generate", mirror("worker-1"))
	two := w.offer(a, w.ns, "worker-2", "generate", mirror("worker-2"))
	w.offer(a, w.ns, "worker-1", "generate2", mirror(""))
	nested := w.offer(a, w.ns+".child", "worker-9", "generate", mirror(""))

	row := func(d *runtime.DistributedRuntime, name, worker, node string) string {
		return strings.Join([]string{name, d.ID().String(), "tcp://" + a.server.Addr(), worker, node}, "\t") + "\n"
	}
	const head = "ENDPOINT\tINSTANCE\tTRANSPORT\tWORKER\tNODE\n"
	generate := "dyn://" + w.ns + ".backend.generate"
	want := head + row(one, generate, "worker-1", "node-1") + row(two, generate, "worker-2", "node-1")
	for _, query := range []string{generate, w.ns + "/backend/generate"} {
		if r := w.ok("get", "endpoints", query); r.stdout != want {
			t.Errorf("%s: %q, want %q", query, r.stdout, want)
		}
	}
	child := "dyn://" + w.ns + ".child.backend.generate"
	if r := w.ok("get", "endpoints", w.ns+".child/"); !strings.HasPrefix(r.stdout, head+row(nested, child, "worker-9", "node-1")) {
		t.Errorf("a nested namespace: %q", r.stdout)
	}
	component := w.ok("get", "endpoints", w.ns+".backend", "-q").stdout
	if component != strings.Repeat(generate+"\n", 2)+generate+"2\n" {
		t.Errorf("a component: %q", component)
	}
	namespace := w.ok("get", "endpoints", w.ns, "-q").stdout
	if !strings.HasSuffix(namespace, component) || !strings.HasPrefix(namespace, "dyn://"+w.ns+".agent.logs\n") {
		t.Errorf("a namespace: %q", namespace)
	}
	if all := w.ok("get", "endpoints", "-q").stdout; !strings.Contains(all, namespace) || !strings.Contains(all, child+"\n") {
		t.Errorf("everything: %q", all)
	}

	var list []struct {
		Name string
		ID   cluster.InstanceID `json:"instance_id"`
		Hex  string             `json:"instance_id_hex"`
		cluster.Instance
	}
	if err := json.Unmarshal([]byte(w.ok("get", "endpoints", generate, "-o", "json").stdout), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != generate || list[0].ID != one.ID() || list[1].Hex != "0x"+two.ID().String() || list[1].Transport.TCP != a.server.Addr()+"/"+two.ID().String()+"/generate" {
		t.Errorf("JSON: %+v", list)
	}

	clitest.Has(t, "completion", w.ok("__complete", "get", "endpoints", "").stdout, strings.TrimPrefix(generate, "dyn://")+"\t2 instances\n")
	clitest.Has(t, "completion", w.ok("__complete", "call", "dyn://").stdout, generate+"\t2 instances\n", child+"\t1 instance\n")

	if r := w.ok("get", "endpoints", w.ns+".nobody"); r.stdout != head || !strings.Contains(r.stderr, "no endpoint of cluster lab matches dyn://"+w.ns+"/nobody/") {
		t.Errorf("a query that nothing matches: %+v", r)
	}
	for _, bad := range []string{"a..b", "A", "a/b/c/"} {
		if r := w.run("get", "endpoints", bad); r.code != exit.Usage || !strings.Contains(r.stderr, "bad name") {
			t.Errorf("%s: %+v", bad, r)
		}
	}
	if r := w.run("get", "endpoints", "a", "b"); r.code != exit.Usage {
		t.Errorf("two queries: %+v", r)
	}
}

// A watch begins with what is there, of any namespace, and goes on with what comes.
func TestGetWatchesEndpoints(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	ns := w.ns + ".child"
	w.offer(a, ns, "worker-1", "generate", mirror(""))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := &watchWriter{want: "worker-1", then: func() { w.offer(a, ns, "worker-2", "generate", mirror("")) }}
	r := w.with(ctx, options{stdout: io.MultiWriter(first, &watchWriter{want: "worker-2", then: cancel})}, "get", "endpoints", ns+"/", "-w")
	if r.code != exit.Interrupted || strings.Count(r.stdout, "\n") != 3 {
		t.Errorf("%+v", r)
	}
}

func TestCall(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	one := w.offer(a, w.ns, "worker-1", "generate", mirror("worker-1"))
	w.offer(a, w.ns, "worker-2", "generate", mirror("worker-2"))
	name := "dyn://" + w.ns + ".backend.generate"
	hex := one.ID().String()

	doc := `{"big":18446744073709551615,"f":0.5,"less":-9223372036854775808,"list":[1,"é<",null,true],"n":{"a":{}}}`
	if r := w.ok("call", name, doc, "--id", hex); r.stdout != doc+"\n"+`{"worker":"worker-1"}`+"\n" {
		t.Errorf("a body: %q", r.stdout)
	}
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, []byte(" [1, 2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]result{
		"a file":         w.ok("call", name, "@"+file, "--id", "0x"+hex),
		"standard input": w.with(t.Context(), options{input: "[1,2]"}, "call", name, "-", "--id", strings.ToUpper(hex)),
	} {
		if r.stdout != "[1,2]\n"+`{"worker":"worker-1"}`+"\n" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	// Without --id, instances take turns by chance: all are reached.
	seen := map[string]bool{}
	for range 100 {
		if seen[w.ok("call", name).stdout] = true; len(seen) == 2 {
			break
		}
	}
	if !seen[`{"worker":"worker-1"}`+"\n"] || !seen[`{"worker":"worker-2"}`+"\n"] {
		t.Errorf("reached: %v", seen)
	}

	for what, tc := range map[string]struct {
		args []string
		code int
		text string
	}{
		"no endpoint":           {nil, exit.Usage, "name one endpoint"},
		"a part is missing":     {[]string{"backend.generate"}, exit.Usage, "want dyn://namespace.component.endpoint"},
		"no JSON":               {[]string{name, "{"}, exit.Usage, "body is not JSON"},
		"two documents":         {[]string{name, "{} {}"}, exit.Usage, "something follows"},
		"an empty input":        {[]string{name, "-"}, exit.Usage, "standard input is not JSON: it is empty"},
		"a file that is absent": {[]string{name, "@/nowhere"}, exit.Usage, "no such file"},
		"nobody serves it":      {[]string{name + "3"}, exit.Failed, "cannot call " + name + "3: no instance\n"},
		"another instance":      {[]string{name, "--id", "77"}, exit.Failed, "no instance 77"},
	} {
		if r := w.run(append([]string{"call"}, tc.args...)...); r.code != tc.code || r.stdout != "" || !strings.Contains(r.stderr, tc.text) {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r := w.run("call", name, "--read-only"); r.code != exit.Failed || r.stdout != "" {
		t.Errorf("read-only: %+v", r)
	}
}

func TestCallOfAnEndpointThatFails(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	w.offer(a, w.ns, "worker-1", "refuse", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		return errors.Join(send(1), &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "no tokens"})
	})
	r := w.run("call", w.ns+".backend.refuse")
	if r.code != exit.Failed || r.stdout != "1\n" || !strings.Contains(r.stderr, "cannot call dyn://"+w.ns+".backend.refuse: invalid_argument: no tokens") {
		t.Errorf("%+v", r)
	}
	// Registered, but nobody listens there.
	gone, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: a.key})
	if err != nil {
		t.Fatal(err)
	}
	d, err := runtime.New(t.Context(), runtime.Config{Store: w.store, Server: gone, Namespace: w.ns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	if _, err := d.Serve(t.Context(), "backend", "gone", mirror("")); err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--id", d.ID().String()}} {
		if r := w.run(append([]string{"call", w.ns + ".backend.gone"}, args...)...); r.code != exit.Unreachable || !strings.Contains(r.stderr, "cannot connect") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// Ctrl-c and the timeout end the request at the worker, too.
func TestCallEndsAtTheWorker(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	ended := make(chan error, 1)
	w.offer(a, w.ns, "worker-1", "hold", func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send("started"); err != nil {
			return err
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	end := func(want ...error) {
		t.Helper()
		select {
		case err := <-ended:
			if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
				t.Errorf("the handler ended with %v, want one of %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("the handler goes on")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.with(ctx, options{stdout: &watchWriter{want: "started", then: cancel}}, "call", w.ns+".backend.hold")
	if r.code != exit.Interrupted || r.stdout != "\"started\"\n" || !strings.Contains(r.stderr, "stopped dyn://") {
		t.Errorf("ctrl-c: %+v", r)
	}
	end(requestplane.ErrStopped, requestplane.ErrClientGone)
	r = w.run("call", w.ns+".backend.hold", "--timeout", "100ms")
	if r.code != exit.Deadline || !strings.Contains(r.stderr, "no end of the answer within 100ms") {
		t.Errorf("timeout: %+v", r)
	}
	if r.stdout != "" { // the deadline did not pass before the handler began
		end(requestplane.ErrTimeout, requestplane.ErrStopped, requestplane.ErrClientGone)
	}
}
