package served

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/tokenizer"
	"github.com/dynctl/dynctl/internal/worker/role"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// seeing is a fake whose bodies are lists of items.
type seeing struct {
	*fake
	encode func(ctx context.Context, r *external.Request) (json.RawMessage, error)
	asked  atomic.Int32
}

func (s *seeing) Items(r *external.Request) (items []external.MediaItem, err error) {
	var all []string
	if err := json.Unmarshal(r.Body, &all); err != nil {
		return nil, invalid("%v", err)
	}
	for _, one := range all {
		items = append(items, external.MediaItem{Key: sha256.Sum256([]byte(one)), Body: json.RawMessage(`"` + one + `"`)})
	}
	return items, nil
}

func (s *seeing) Encode(ctx context.Context, r *external.Request) (json.RawMessage, error) {
	s.asked.Add(1)
	return s.encode(ctx, r)
}

// tells answers as a server that says something of each item.
func tells(_ context.Context, r *external.Request) (json.RawMessage, error) {
	return json.RawMessage(`{"of":` + string(r.Body) + `}`), nil
}

// gallery is a cluster with servers that encode and one that has prompts.
type gallery struct {
	*roletest.World
	encoders []*seeing
	servers  []*Server
	duties   []role.Role

	mu   sync.Mutex
	told []cluster.Encoding

	got    *external.Request // by the server with the prompt
	reader *Server
	call   func(ctx context.Context, p protocol.PreprocessedRequest) (protocol.EngineOutput, error)
}

// newGallery starts one. The last server has the role of the prompt's.
func newGallery(t *testing.T, as cluster.Role, change func(*Config), encode ...func(context.Context, *external.Request) (json.RawMessage, error)) *gallery {
	t.Helper()
	g := &gallery{World: roletest.New(t)}
	for i, f := range encode {
		e := &seeing{fake: &fake{facts: external.Facts{Version: "1.0"}}, encode: f}
		s := newServer(e.fake, func(c *Config) {
			c.Engine = e
			c.Encoded = func(one cluster.Encoding) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.told = append(g.told, one)
			}
		})
		r, err := s.NewRole(cluster.RoleEncode, g.Term(t, fmt.Sprintf("e-%d", i+1), cluster.RoleEncode))
		if err == nil {
			err = r.Register(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.End)
		g.encoders, g.servers, g.duties = append(g.encoders, e), append(g.servers, s), append(g.duties, r)
	}
	f := &fake{facts: external.Facts{Version: "1.0"}, exchange: external.ExchangeSequential}
	f.generate = func(_ context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
		g.got = r
		return emit(protocol.EngineOutput{Raw: json.RawMessage("{}"), Finish: protocol.FinishStop})
	}
	f.prefill = func(_ context.Context, r *external.Request) (external.Prefilled, error) {
		g.got = r
		return external.Prefilled{Answer: []protocol.EngineOutput{{Finish: protocol.FinishStop}}}, nil
	}
	e := &seeing{fake: f}
	s := newServer(f, func(c *Config) {
		c.Engine = e
		if change != nil {
			change(c)
		}
	})
	term := g.Term(t, "w", as)
	r, err := s.NewRole(as, term)
	if err == nil {
		err = r.Register(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.End)
	client, err := term.Client(t.Context(), cluster.Endpoint{Component: as.Component(), Name: cluster.EndpointGenerate})
	if err != nil {
		t.Fatal(err)
	}
	if len(encode) > 0 {
		seen, err := term.Client(t.Context(), cluster.Endpoint{Component: cluster.RoleEncode.Component(), Name: cluster.EndpointEncode(term.Model.Digest)})
		if err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the encode workers are known", func() bool { return len(seen.Instances()) == len(encode) })
	}
	g.reader, g.call = s, func(ctx context.Context, p protocol.PreprocessedRequest) (out protocol.EngineOutput, err error) {
		p.Disagg.Deadline = time.Now().Add(patience.Soon)
		g.got = nil
		stream, err := client.Call(ctx, g.instance(t, client), p.RequestID, nil, p)
		if err != nil {
			return out, err
		}
		defer stream.Close()
		return out, stream.Recv(ctx, &out)
	}
	return g
}

// instance returns the only instance of an endpoint.
func (g *gallery) instance(t *testing.T, c *runtime.Client) cluster.Instance {
	patience.Until(t, "the worker is known", func() bool { return len(c.Instances()) == 1 })
	return c.Instances()[0]
}

// show returns a request that shows items.
func show(items ...string) protocol.PreprocessedRequest {
	body, err := json.Marshal(items)
	if err != nil {
		panic(err)
	}
	return protocol.PreprocessedRequest{RequestID: "r", API: protocol.APIChat, Body: body}
}

func (g *gallery) said() (all []string) {
	for _, one := range g.got.Encoded {
		all = append(all, string(one))
	}
	slices.Sort(all)
	return all
}

// What a request shows is encoded by other servers, whatever the role of its own, and these are
// chosen by content.
func TestEncodedElsewhere(t *testing.T) {
	for _, as := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		t.Run(string(as), func(t *testing.T) {
			var mu sync.Mutex
			ids := map[string]int{}
			note := func(ctx context.Context, r *external.Request) (json.RawMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				ids[r.RequestID]++
				if r.Model != "m" || r.API != protocol.APIChat {
					t.Errorf("asked for %s by %s", r.Model, r.API)
				}
				if string(r.Body) == `"c"` {
					return nil, nil // it is in a store
				}
				return tells(ctx, r)
			}
			g := newGallery(t, as, nil, note, note)
			items := []string{"a", "b", "c", "d", "e", "f"}
			out, err := g.call(t.Context(), show(items...))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"", `{"of":"a"}`, `{"of":"b"}`, `{"of":"d"}`, `{"of":"e"}`, `{"of":"f"}`}
			if got := g.said(); !slices.Equal(got, want) {
				t.Errorf("the server is told %q", got)
			}
			e := out.Timing.Encoded
			if e.Parts != 6 || len(e.By) != 6 || e.Why != "" || e.NS <= 0 || slices.Contains(e.By, "w") || e.Chosen[0] != "first by content" && !strings.Contains(e.Chosen[0], "in hand") {
				t.Errorf("%+v", e)
			}
			one, two := int(g.encoders[0].asked.Load()), int(g.encoders[1].asked.Load())
			if one+two != 6 || one == 0 || two == 0 {
				t.Errorf("%d and %d items", one, two)
			}
			if len(ids) != 6 || ids["r#0"] != 1 || ids["r#5"] != 1 {
				t.Errorf("requests %v", ids)
			}
			patience.Until(t, "all items have ended", func() bool { return int(g.servers[0].Stats().FinishedTotal) == one }) // after the answer
			if st := g.servers[0].Stats(); int(st.EncodedTotal) != one || st.StepNanosTotal == 0 {
				t.Errorf("%+v after %d items", st, one)
			}
			if len(g.told) != 6 || g.told[0].For != "w" || len(g.told[0].Content) != 12 || !strings.HasPrefix(g.told[0].RequestID, "r#") || g.told[0].TookNS <= 0 {
				t.Errorf("events %+v", g.told)
			}
			if n := strings.Count(g.Scrape(), `outcome="computed"`); n == 0 {
				t.Error("no figure of the images")
			}
			// The same content goes to the same server.
			before := []int32{g.encoders[0].asked.Load(), g.encoders[1].asked.Load()}
			for range 3 {
				if _, err := g.call(t.Context(), show("a")); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := g.encoders[0].asked.Load()-before[0], g.encoders[1].asked.Load()-before[1]; a*b != 0 || a+b != 3 {
				t.Errorf("%d and %d times the same content", a, b)
			}
		})
	}
}

// What one server does not encode another one does, or the server with the prompt; what is wrong
// with an item is wrong everywhere.
func TestEncodeFailures(t *testing.T) {
	broken := func(context.Context, *external.Request) (json.RawMessage, error) {
		return nil, unavailable("the engine died")
	}
	hangs := func(ctx context.Context, _ *external.Request) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	bad := func(ctx context.Context, r *external.Request) (json.RawMessage, error) {
		if string(r.Body) == `"bad"` {
			return nil, invalid("no image")
		}
		return tells(ctx, r)
	}
	soon := func(c *Config) {
		c.Waits = DefaultWaits
		c.Waits.Encode = 50 * time.Millisecond
	}
	for name, tc := range map[string]struct {
		encode []func(context.Context, *external.Request) (json.RawMessage, error)
		change func(*Config)
		items  []string
		told   []string
		by     []string // other workers than e-2
		why    string
		fails  requestplane.Kind
	}{
		"one is broken":       {[]func(context.Context, *external.Request) (json.RawMessage, error){broken, tells}, nil, []string{"a", "b", "c", "d", "e", "f"}, []string{`{"of":"a"}`, `{"of":"b"}`, `{"of":"c"}`, `{"of":"d"}`, `{"of":"e"}`, `{"of":"f"}`}, nil, "", ""},
		"all are broken":      {[]func(context.Context, *external.Request) (json.RawMessage, error){broken, broken}, nil, []string{"a"}, nil, []string{"w"}, "the engine died", ""},
		"one hangs":           {[]func(context.Context, *external.Request) (json.RawMessage, error){hangs, tells}, soon, []string{"a", "b", "c"}, []string{`{"of":"a"}`, `{"of":"b"}`, `{"of":"c"}`}, nil, "", ""},
		"all hang":            {[]func(context.Context, *external.Request) (json.RawMessage, error){hangs}, soon, []string{"a"}, nil, []string{"w"}, "no embeddings within 50ms", ""},
		"another version":     {[]func(context.Context, *external.Request) (json.RawMessage, error){tells}, func(c *Config) { c.Facts.Version = "2.0" }, []string{"a"}, nil, []string{"w"}, "e-1 has vllm 1.0, the server with the prompt has 2.0", ""},
		"no version":          {[]func(context.Context, *external.Request) (json.RawMessage, error){tells}, func(c *Config) { c.Facts.Version = "" }, []string{"a"}, []string{`{"of":"a"}`}, []string{"e-1"}, "", ""},
		"nobody encodes":      {nil, nil, []string{"a"}, nil, nil, "", ""},
		"nothing to encode":   {[]func(context.Context, *external.Request) (json.RawMessage, error){tells}, nil, []string{}, nil, nil, "", ""},
		"a bad item":          {[]func(context.Context, *external.Request) (json.RawMessage, error){bad, bad}, nil, []string{"a", "bad", "c"}, nil, nil, "", requestplane.KindInvalidArgument},
		"too many":            {[]func(context.Context, *external.Request) (json.RawMessage, error){tells}, nil, many(maxItems + 1), nil, nil, "", requestplane.KindInvalidArgument},
		"what cannot be read": {[]func(context.Context, *external.Request) (json.RawMessage, error){tells}, nil, nil, nil, nil, "", requestplane.KindInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGallery(t, cluster.RoleDecode, tc.change, tc.encode...)
			p := show(tc.items...)
			if tc.items == nil {
				p.Body = json.RawMessage(`{}`)
			}
			out, err := g.call(t.Context(), p)
			var remote *requestplane.RemoteError
			if tc.fails != "" {
				if !errors.As(err, &remote) || remote.Kind != tc.fails || g.got != nil || name == "a bad item" && !strings.Contains(remote.Message, "video 2: no image") {
					t.Errorf("%v, and the server got %v", err, g.got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := g.said(); !slices.Equal(got, tc.told) || tc.told == nil && g.got.Encoded != nil {
				t.Errorf("the server is told %q", got)
			}
			e := out.Timing.Encoded
			if broken := strings.Contains(strings.Join(e.Chosen, "\n"), "e-1 failed: unavailable: the engine died"); name == "one is broken" && !broken {
				t.Errorf("chosen because %q", e.Chosen)
			}
			others := slices.DeleteFunc(slices.Clone(e.By), func(w string) bool { return w == "e-2" })
			if !slices.Equal(others, tc.by) || !strings.Contains(e.Why, tc.why) || (e.Why == "") != (tc.why == "") || (e.Parts > 0) != (len(tc.items) > 0 && tc.encode != nil) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func many(n int) (items []string) {
	for i := range n {
		items = append(items, fmt.Sprint(i))
	}
	return items
}

// An adapter may see in its own way, the second leg of a request needs no embeddings, and prompts of
// tokens have none.
func TestNotEncodedElsewhere(t *testing.T) {
	g := newGallery(t, cluster.RoleDecode, func(c *Config) { c.Facts.Adapters = []string{"tuned"} }, tells)
	for name, change := range map[string]func(*protocol.PreprocessedRequest){
		"an adapter": func(p *protocol.PreprocessedRequest) { p.Adapter = "tuned" },
		"a second leg": func(p *protocol.PreprocessedRequest) {
			p.Disagg.Params = &protocol.DisaggregatedParams{Handoff: json.RawMessage(`{}`)}
		},
		"a meeting": func(p *protocol.PreprocessedRequest) {
			p.Disagg.Bootstrap = &protocol.BootstrapInfo{Place: &cluster.ServerPlace{Host: "h"}}
		},
		"tokens": func(p *protocol.PreprocessedRequest) { p.Body, p.TokenIDs = nil, []uint32{1} },
	} {
		p := show("a")
		change(&p)
		if _, err := g.call(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if g.got.Encoded != nil || g.encoders[0].asked.Load() != 0 {
			t.Errorf("%s: %d items were encoded elsewhere", name, g.encoders[0].asked.Load())
		}
	}
}

// One request does not take all of the encode workers at a time, and what is in hand is shown as
// images and not as sequences.
func TestImagesInHand(t *testing.T) {
	let := make(chan struct{})
	var at, most atomic.Int32
	g := newGallery(t, cluster.RoleDecode, nil, func(ctx context.Context, r *external.Request) (json.RawMessage, error) {
		for n := at.Add(1); ; {
			if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		defer at.Add(-1)
		select {
		case <-let:
		case <-ctx.Done():
		}
		return tells(ctx, r)
	})
	ended := make(chan error, 1)
	go func() {
		_, err := g.call(t.Context(), show(many(3*maxAtOnce)...))
		ended <- err
	}()
	patience.Until(t, "the first are there", func() bool { return at.Load() == maxAtOnce })
	images, n := g.duties[0].InHand(4)
	if n != maxAtOnce || len(images) != 4 || images[0].Worker != "w" || images[0].State != cluster.ImageEncoding || !strings.HasPrefix(images[0].RequestID, "r#") {
		t.Errorf("%d images, %+v", n, images)
	}
	if all, n := g.servers[0].Sequences(4); n != 0 || len(all) != 0 {
		t.Errorf("%d sequences, %+v", n, all)
	}
	if n := g.servers[0].AtServer(t.Context()); n != maxAtOnce {
		t.Errorf("%d at the server", n)
	}
	close(let)
	if err := <-ended; err != nil || most.Load() != maxAtOnce {
		t.Errorf("%v; %d at a time", err, most.Load())
	}
}

// A client that leaves is not encoded for.
func TestEncodingEnds(t *testing.T) {
	began, left := make(chan struct{}), make(chan struct{})
	g := newGallery(t, cluster.RoleDecode, nil, func(ctx context.Context, _ *external.Request) (json.RawMessage, error) {
		close(began)
		<-ctx.Done()
		close(left)
		return nil, context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := g.call(ctx, show("a")); err == nil {
		t.Error("it was answered")
	}
	select {
	case <-left:
	case <-time.After(patience.Soon):
		t.Fatal("the server still encodes")
	}
	patience.Until(t, "nothing is in hand", func() bool { _, n := g.duties[0].InHand(1); return n == 0 })
	if st := g.servers[0].Stats(); st.EncodedTotal != 0 || st.CancelledTotal != 1 || len(g.told) != 0 {
		t.Errorf("%+v, events %v", st, g.told)
	}
}

// Only a server that encodes can be an encode worker, for a model whose prompts are bodies.
func TestWhoEncodes(t *testing.T) {
	encodes := &seeing{fake: &fake{}}
	for name, s := range map[string]*Server{
		"does not": newServer(&fake{}),
		"tokens":   newServer(encodes.fake, func(c *Config) { c.Engine, c.Tokenizer = encodes, &tokenizer.Tokenizer{} }),
	} {
		if _, err := s.NewRole(cluster.RoleEncode, &role.Term{}); err == nil || !strings.Contains(err.Error(), "encodes for itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
