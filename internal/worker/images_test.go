package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// tower is an encoder whose embeddings follow from each byte of the content. Content that
// begins with "bad" is no image.
type tower struct {
	calls atomic.Int32
	gate  chan struct{} // nil: open; each encoding takes one
	after func()        // nil, or what an encoding still does when its context has ended
}

func (e *tower) Encode(ctx context.Context, p *protocol.MediaPart, content []byte) ([][]float32, error) {
	e.calls.Add(1)
	if e.after != nil {
		<-ctx.Done()
		e.after()
		return nil, context.Cause(ctx)
	}
	if e.gate != nil {
		select {
		case <-e.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if strings.HasPrefix(string(content), "bad") {
		return nil, fmt.Errorf("%w: its format is unknown", media.ErrBadContent)
	}
	return embeddings(p.Rows, content), nil
}

func embeddings(n int, content []byte) [][]float32 {
	var key blockhash.Key
	copy(key[:], protocol.ContentID(content))
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, mock.EmbeddingSize)
		for j := range rows[i] {
			rows[i][j] = float32(binary.LittleEndian.Uint16(key[2*j:])) + float32(i)/1024
		}
	}
	return rows
}

// album is a frontend that has images.
type album struct {
	t       *testing.T
	drt     *runtime.DistributedRuntime
	mu      sync.Mutex
	content map[string][]byte
	lent    map[string]int // requests that have it
	fetched map[string]int
	gate    chan struct{} // nil, or closed when content may be sent
}

func (w *world) album() *album { return w.albumOf("album") }

func (w *world) albumOf(frontend string) *album {
	a := &album{t: w.t, drt: w.c.Runtime(w.t, frontend), content: map[string][]byte{}, lent: map[string]int{}, fetched: map[string]int{}}
	if _, err := a.drt.Serve(w.t.Context(), cluster.ComponentFrontend, cluster.EndpointMedia, a.serve); err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (a *album) serve(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.MediaRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	a.mu.Lock()
	a.fetched[req.ID]++
	a.mu.Unlock()
	if a.gate != nil {
		<-a.gate
	}
	content, ok := a.get(req.ID)
	if !ok {
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "no such content"}
	}
	for chunk := range slices.Chunk(content, 5) {
		if err := send(protocol.MediaChunk{Data: chunk}); err != nil {
			return err
		}
	}
	return nil
}

func (a *album) get(id string) (content []byte, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	content, ok = a.content[id]
	return content, ok
}

func (a *album) fetches(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fetched[id]
}

// put adds content and returns the part of a prompt that it is.
func (a *album) put(content string, start, rows int) protocol.MediaPart {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := protocol.ContentID([]byte(content))
	a.content[id] = []byte(content)
	var key blockhash.Key
	copy(key[:], fmt.Sprintf("%.14s%02d", id, rows))
	return protocol.MediaPart{
		Start: start, End: start + rows, Rows: rows, Token: 7, Key: key, Kind: protocol.MediaImage,
		Source: protocol.MediaSource{Frontend: a.drt.ID(), ID: id, Size: int64(len(content))},
	}
}

// illustrate puts images into a request, and returns the tokens that the backend takes its
// prompt for.
func (a *album) illustrate(req *protocol.PreprocessedRequest, parts ...protocol.MediaPart) (means []uint32) {
	req.Media = parts
	req.TokenIDs = slices.Clone(req.TokenIDs)
	for i, token := range req.TokenIDs {
		if token == 7 { // which is for images
			req.TokenIDs[i] = 8
		}
	}
	means = slices.Clone(req.TokenIDs)
	for i := range parts {
		p := &parts[i]
		p.End = p.Start
		content, _ := a.get(p.Source.ID)
		for i, row := range embeddings(p.Rows, content) {
			if i > 0 && i%12 == 0 { // text between the rows
				p.End += 2
			}
			req.TokenIDs[p.End], means[p.End] = 7, mock.TokenOf(row)
			p.End++
		}
	}
	return means
}

// sees lets a worker take images, and encode them if e is not nil.
func sees(e media.Encoder) func(*Config) {
	return func(c *Config) {
		load := c.Load
		c.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
			l, err := load(ctx, progress)
			if err == nil {
				l.Embedding, l.Encoder = mock.EmbeddingSize, e
			}
			return l, err
		}
	}
}

// restful waits until no embeddings are on their way and no block is in use.
func restful(t *testing.T, workers ...*running) {
	t.Helper()
	idle(t, workers...)
	for _, x := range workers {
		eventually(t, x.Name()+" has no embeddings on their way", func() bool { return x.builtin().media.Idle() == nil })
	}
}

// The answer is the same wherever the images are encoded and the prompt is computed.
func TestImages(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp %t", tcp), func(t *testing.T) {
			w := newWorld(t)
			w.tcp = tcp
			a := w.album()
			own, other := &tower{}, &tower{}
			enc := w.start("worker-1", cluster.RoleEncode, sees(other))
			pre := w.start("worker-2", cluster.RolePrefill, sees(nil))
			d := w.start("worker-3", cluster.RoleDecode, sees(nil))
			r := seeded(t)
			n := 0
			ask := func(name string, way func(protocol.PreprocessedRequest) protocol.PreprocessedRequest, want func(*protocol.Timing) bool) {
				t.Helper()
				n++
				req := request(name, prompt(r, 200), 8)
				one, two := a.put(fmt.Sprint("one ", n), 5, 40), a.put(fmt.Sprint("two ", n), 120, 17)
				again := one
				again.Start = 70
				means := a.illustrate(&req, one, again, two)
				got := w.generate(t.Context(), "worker-3", way(req))
				check(t, got, means, 8)
				if got.timing == nil || !want(got.timing) || got.decode <= 0 {
					t.Errorf("%s: %+v, decoded in %d ns", name, got.timing, got.decode)
				}
				kv := got.timing.KV
				if moved := kv.NS > 0 && kv.ExposedNS > 0 && kv.Bytes > 0 && kv.Transport != ""; moved != (got.timing.Prefill != "local") || !moved && kv != (protocol.KVMoved{}) {
					t.Errorf("%s: KV moved as %+v", name, kv)
				}
				if known := got.timing.ComputeNS > 0; known != (got.timing.PrefillWay != "" && got.timing.PrefillWay != protocol.WayPull) {
					t.Errorf("%s: the prefill worker computed for %d ns", name, got.timing.ComputeNS)
				}
			}
			remote := func(way protocol.PrefillWay) func(*protocol.Timing) bool {
				return func(tm *protocol.Timing) bool {
					e := &tm.Encoded
					return tm.Prefill == "worker-2" && tm.PrefillWay == way && e.Parts == 3 && e.Cached == 1 && slices.Equal(e.By, []string{"worker-1", "worker-1"}) &&
						e.Bytes == int64(4*mock.EmbeddingSize*57) && e.NS > 0 && e.Why == "" && slices.Equal(e.Chosen, []string{"first by content", "first by content"})
				}
			}
			h := w.hops()
			ask("queue", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest { return p }, func(tm *protocol.Timing) bool {
				return tm.Prefill == "worker-2" && tm.PrefillWay == protocol.WayQueue && tm.Encoded.Parts == 3 // of the delivery that was first
			})
			ask("pull", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
				p, _ = h.hold("worker-2", p, patience.Soon)
				return p
			}, func(tm *protocol.Timing) bool { return tm.Prefill == "worker-2" && tm.PrefillWay == protocol.WayPull })
			ask("background", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
				room := h.room("worker-2", 77)
				h.call(t.Context(), "worker-2", p, room, patience.Soon)
				return inRoom(p, room)
			}, remote(protocol.WayBackground))
			ask("here", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
				p.Disagg.Force = "local"
				return p
			}, func(tm *protocol.Timing) bool {
				return tm.Prefill == "local" && tm.Encoded.Parts == 3 && tm.Encoded.By[0] == "worker-1"
			})
			if got := other.calls.Load(); got != 8 { // each image once
				t.Errorf("%d encodings", got)
			}
			restful(t, enc, pre, d)

			// Without encode workers a worker encodes itself, and says so.
			enc.stop(errors.New("over"))
			d.stop(errors.New("over"))
			d = w.start("worker-3", cluster.RoleDecode, sees(own))
			eventually(t, "the encode worker has left", func() bool { return len(d.sees(cluster.RoleEncode)) == 0 })
			ask("itself", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
				p.Disagg.Force = "local"
				return p
			}, func(tm *protocol.Timing) bool {
				return tm.Encoded.Why == "no encode worker" && slices.Equal(tm.Encoded.By, []string{"worker-3", "worker-3"}) && own.calls.Load() == 2
			})
			restful(t, pre, d)
		})
	}
}

// An image that is asked for again is not computed, moved or fetched again, whoever asks.
func TestImagesAreEncodedOnce(t *testing.T) {
	w := newWorld(t)
	a := w.album()
	e := &tower{gate: make(chan struct{})}
	enc := w.start("worker-1", cluster.RoleEncode, sees(e))
	if st := enc.Status(); st.BlockBytes != 0 || st.Stats.KVTotal != 0 || st.Stats.MaxSeqs != 0 {
		t.Errorf("an encode worker has KV: %+v", st)
	}
	d := []*running{w.start("worker-2", cluster.RoleDecode, sees(nil)), w.start("worker-3", cluster.RoleDecode, sees(nil))}
	r := seeded(t)
	part := a.put("door", 20, 30)
	var wg sync.WaitGroup
	for i := range 8 {
		req := request(fmt.Sprint("r", i), prompt(r, 90), 5)
		req.Disagg.Force = "local"
		means := a.illustrate(&req, part)
		wg.Go(func() { check(t, w.generate(t.Context(), d[i%2].Name(), req), means, 5) })
	}
	eventually(t, "all wait for the image", func() bool {
		return e.calls.Load() == 1 && d[0].engine().Stats().EncodeWait == 4 && d[1].engine().Stats().EncodeWait == 4
	})
	if st := enc.Status().Stats; st.Running != 1 || st.Waiting != 0 {
		t.Errorf("%d run, %d wait", st.Running, st.Waiting)
	}
	e.gate <- struct{}{}
	wg.Wait()
	if st := enc.Status().Stats; st.Running != 0 || st.FinishedTotal == 0 {
		t.Errorf("%d run, %d have ended", st.Running, st.FinishedTotal)
	}
	if n, fetched := e.calls.Load(), a.fetched[part.Source.ID]; n != 1 || fetched != 1 {
		t.Errorf("encoded %d times, fetched %d times", n, fetched)
	}
	for _, x := range d {
		if st := x.builtin().media.Stats(); st.Cache.Misses != 1 || st.Cache.Hits != 3 || st.Cache.Entries != 1 {
			t.Errorf("%s: %+v", x.Name(), st.Cache)
		}
	}
	restful(t, append(d, enc)...)
}

// Whatever goes wrong with an encode worker, another one or the worker itself encodes, or the
// client hears why not; nothing stays behind.
func TestImagesWhenEncodersFail(t *testing.T) {
	local := func(a *album, id, content string) (protocol.PreprocessedRequest, []uint32) {
		req := request(id, prompt(seeded(a.t), 90), 5)
		req.Disagg.Force = "local"
		return req, a.illustrate(&req, a.put(content, 20, 30))
	}
	t.Run("bad content", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		e, f := &tower{}, &tower{}
		one, two := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-2", cluster.RoleEncode, sees(f))
		d := w.start("worker-3", cluster.RoleDecode, sees(nil))
		eventually(t, "both are known", func() bool { return len(d.sees(cluster.RoleEncode)) == 2 })
		req, _ := local(a, "r", "bad image")
		got := w.generate(t.Context(), "", req)
		var remote *requestplane.RemoteError
		if !errors.As(got.err, &remote) || remote.Kind != requestplane.KindInvalidArgument || !strings.Contains(remote.Message, "its format is unknown") {
			t.Errorf("%v", got.err)
		}
		if n := e.calls.Load() + f.calls.Load(); n != 1 {
			t.Errorf("%d workers tried", n)
		}
		restful(t, one, two, d)
	})
	t.Run("no content", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		enc, d := w.start("worker-1", cluster.RoleEncode, sees(&tower{})), w.start("worker-3", cluster.RoleDecode, sees(nil))
		eventually(t, "it is known", func() bool { return len(d.sees(cluster.RoleEncode)) == 1 })
		req, _ := local(a, "r", "gone")
		delete(a.content, req.Media[0].Source.ID)
		if got := w.generate(t.Context(), "", req); got.err == nil || !strings.Contains(got.err.Error(), "no such content") {
			t.Errorf("%v", got.err)
		}
		req, _ = local(a, "s", "short")
		a.content[req.Media[0].Source.ID] = []byte("shor")
		if got := w.generate(t.Context(), "", req); got.err == nil || !strings.Contains(got.err.Error(), "4 of 5 bytes came") {
			t.Errorf("%v", got.err)
		}
		req, _ = local(a, "u", "right")
		a.content[req.Media[0].Source.ID] = []byte("wrong")
		if got := w.generate(t.Context(), "", req); got.err == nil || !strings.Contains(got.err.Error(), "or others than it has") {
			t.Errorf("%v", got.err)
		}
		restful(t, enc, d)
	})
	t.Run("nobody reads", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		enc := w.start("worker-1", cluster.RoleEncode, sees(&tower{}))
		c := runtimetest.Client(t, w.c.Runtime(t, "reader"), cluster.RoleEncode.Component(), cluster.EndpointGenerate)
		if err := c.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s, err := c.Call(t.Context(), c.Instances()[0], "r", nil, protocol.EncodeRequest{
			RequestID: "r", ModelSum: digest, Part: a.put("x", 0, 9), EngineID: "worker-9.1", Worker: "worker-9", Deadline: time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		var reply protocol.EncodeReply
		if err := s.Recv(t.Context(), &reply); err != nil || reply.Worker != "worker-1" || fmt.Sprint(reply.Shape) != "[9 4]" {
			t.Errorf("%+v, %v", reply, err)
		}
		if enc.builtin().media.Idle() == nil {
			t.Error("nothing is offered")
		}
		s.Close() // long before the deadline
		restful(t, enc)
	})
	t.Run("nobody encodes", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		d := w.start("worker-3", cluster.RoleDecode, sees(nil))
		req, _ := local(a, "r", "x")
		var remote *requestplane.RemoteError
		if got := w.generate(t.Context(), "", req); !errors.As(got.err, &remote) || remote.Kind != requestplane.KindUnavailable || !strings.Contains(remote.Message, "no encode worker") {
			t.Errorf("%v", got.err)
		}
		restful(t, d)
	})
	t.Run("bad content, here", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		d := w.start("worker-3", cluster.RoleDecode, sees(&tower{}))
		req, _ := local(a, "r", "bad image")
		var remote *requestplane.RemoteError
		if got := w.generate(t.Context(), "", req); !errors.As(got.err, &remote) || remote.Kind != requestplane.KindInvalidArgument || !strings.Contains(remote.Message, "its format is unknown") {
			t.Errorf("%v", got.err)
		}
		restful(t, d)
	})
	t.Run("encode workers elsewhere", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		other := cluster.Endpoint{Namespace: "other", Component: "eyes", Name: "look"}
		if _, err := a.drt.Endpoint(other).Serve(t.Context(), func(_ context.Context, r *requestplane.Request, _ func(any) error) error {
			var req protocol.EncodeRequest
			if err := r.Decode(&req); err != nil || req.Part.Rows != 30 || req.Worker != "worker-3" || req.ModelSum != digest {
				t.Errorf("asked %+v, %v", req, err)
			}
			return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "seen by the others"}
		}); err != nil {
			t.Fatal(err)
		}
		d := w.start("worker-3", cluster.RoleDecode, sees(nil), func(c *Config) { c.Encode = other })
		req, _ := local(a, "r", "x")
		if got := w.generate(t.Context(), "", req); got.err == nil || !strings.Contains(got.err.Error(), "seen by the others") {
			t.Errorf("%v", got.err)
		}
		restful(t, d)
	})
	t.Run("a model of text", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		w.start("worker-3", cluster.RoleDecode)
		req, _ := local(a, "r", "x")
		var remote *requestplane.RemoteError
		if got := w.generate(t.Context(), "", req); !errors.As(got.err, &remote) || remote.Kind != requestplane.KindInvalidArgument {
			t.Errorf("%v", got.err)
		}
	})
	t.Run("killed while it encodes", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		e, f := &tower{gate: make(chan struct{})}, &tower{gate: make(chan struct{})}
		one, two := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-2", cluster.RoleEncode, sees(f))
		d := w.start("worker-3", cluster.RoleDecode, sees(nil))
		eventually(t, "both are known", func() bool { return len(d.sees(cluster.RoleEncode)) == 2 })
		req, means := local(a, "r", "x")
		done := make(chan result, 1)
		go func() { done <- w.generate(t.Context(), "", req) }()
		eventually(t, "one encodes", func() bool { return e.calls.Load()+f.calls.Load() == 1 })
		left := two
		if f.calls.Load() == 1 {
			left = one
			two.server.Close()
			two.stop(errors.New("killed"))
		} else {
			one.server.Close()
			one.stop(errors.New("killed"))
		}
		close(e.gate)
		close(f.gate)
		got := <-done
		check(t, got, means, 5)
		if got.timing == nil || !slices.Equal(got.timing.Encoded.By, []string{left.Name()}) {
			t.Errorf("%+v", got.timing)
		}
		restful(t, left, d)
	})
	t.Run("stopped while it encodes", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		released := make(chan struct{})
		e := &tower{after: func() { // its context ended
			select {
			case <-released:
				t.Error("the weights were released while they are read")
			case <-time.After(100 * time.Millisecond): // long after the worker has nothing else to end
			}
		}}
		d := w.start("worker-3", cluster.RoleDecode, sees(e), func(c *Config) {
			load := c.Load
			c.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
				l, err := load(ctx, progress)
				l.Release = func() { close(released) }
				return l, err
			}
		})
		req, _ := local(a, "r", "x")
		done := make(chan result, 1)
		go func() { done <- w.generate(t.Context(), "", req) }()
		eventually(t, "it encodes", func() bool { return e.calls.Load() == 1 })
		_ = d.stop(errors.New("stopped"))
		<-released
		if got := <-done; !elsewhere(got.err) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("another request's frontend is gone", func(t *testing.T) {
		for _, encode := range []bool{true, false} {
			w := newWorld(t)
			one, two := w.albumOf("album-1"), w.albumOf("album-2")
			e := &tower{}
			d := []*running{w.start("worker-3", cluster.RoleDecode, sees(nil)), w.start("worker-4", cluster.RoleDecode, sees(nil))}
			if encode {
				d = append(d, w.start("worker-1", cluster.RoleEncode, sees(e)))
				eventually(t, "it is known", func() bool { return len(d[0].sees(cluster.RoleEncode)) == 1 && len(d[1].sees(cluster.RoleEncode)) == 1 })
			} else {
				d = []*running{w.start("worker-5", cluster.RoleDecode, sees(e))}
			}
			one.gate = make(chan struct{})
			first, _ := local(one, "r", "x")
			second, means := local(two, "s", "x")
			delete(one.content, first.Media[0].Source.ID)
			waiting := d[len(d)-1] // where the image is encoded
			at := []string{"worker-3", "worker-4"}
			if !encode {
				at = []string{"worker-5", "worker-5"}
			}
			done := make(chan result, 1)
			go func() { done <- w.generate(t.Context(), at[0], first) }()
			eventually(t, "the first one is fetched", func() bool { return one.fetches(first.Media[0].Source.ID) == 1 })
			other := make(chan result, 1)
			go func() { other <- w.generate(t.Context(), at[1], second) }()
			eventually(t, "the second one waits", func() bool { return waiting.builtin().media.Stats().Cache.Hits == 1 })
			close(one.gate)
			if got := <-done; got.err == nil || !strings.Contains(got.err.Error(), "no such content") {
				t.Errorf("the first: %+v", got)
			}
			check(t, <-other, means, 5)
			restful(t, d...)
		}
	})
	t.Run("client leaves", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		e := &tower{gate: make(chan struct{})}
		enc, d := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-3", cluster.RoleDecode, sees(nil))
		eventually(t, "it is known", func() bool { return len(d.sees(cluster.RoleEncode)) == 1 })
		req, _ := local(a, "r", "x")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan result, 1)
		go func() { done <- w.generate(ctx, "", req) }()
		eventually(t, "it encodes", func() bool { return e.calls.Load() == 1 })
		cancel()
		<-done
		restful(t, enc, d)
		eventually(t, "the encoder was told", func() bool {
			return enc.builtin().media.Stats().Waiting == 0 && enc.term.Load().requestsInFlight() == 0
		})
	})
	t.Run("drained", func(t *testing.T) {
		w := newWorld(t)
		a := w.album()
		e := &tower{gate: make(chan struct{})}
		enc, d := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-3", cluster.RoleDecode, sees(nil))
		eventually(t, "it is known", func() bool { return len(d.sees(cluster.RoleEncode)) == 1 })
		req, means := local(a, "r", "x")
		done := make(chan result, 1)
		go func() { done <- w.generate(t.Context(), "", req) }()
		eventually(t, "it encodes", func() bool { return e.calls.Load() == 1 })
		enc.drain(t)
		eventually(t, "it waits for its images", func() bool { return step(enc) == cluster.DrainSequences })
		e.gate <- struct{}{}
		check(t, <-done, means, 5)
		enc.drained(t)
		restful(t, d)
	})
}

// A prompt may end with an image. The decode worker computes its last position, and so all of
// it; who asks a prefill worker all the same is refused.
func TestImagesAtTheEnd(t *testing.T) {
	w := newWorld(t)
	a := w.album()
	e := &tower{}
	enc, pre, d := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-2", cluster.RolePrefill, sees(nil)), w.start("worker-3", cluster.RoleDecode, sees(nil))
	eventually(t, "all are known", func() bool { return len(d.sees(cluster.RoleEncode)) == 1 && len(d.sees(cluster.RolePrefill)) == 1 })
	req := request("r", prompt(seeded(t), 90), 6)
	means := a.illustrate(&req, a.put("x", 78, 12))
	if req.Media[0].End != 90 {
		t.Fatalf("the image ends at %d", req.Media[0].End)
	}
	got := w.generate(t.Context(), "", req)
	check(t, got, means, 6)
	if got.timing == nil || got.timing.Prefill != "local" || got.timing.PrefillWhy != "ends with an image" {
		t.Errorf("%+v", got.timing)
	}
	h := w.hops()
	s := h.call(t.Context(), "worker-2", req, nil, patience.Soon)
	var o protocol.EngineOutput
	var remote *requestplane.RemoteError
	if err := s.Recv(t.Context(), &o); !errors.As(err, &remote) || remote.Kind != requestplane.KindInvalidArgument {
		t.Errorf("a prefill worker: %+v, %v", o, err)
	}
	restful(t, enc, pre, d)
}

// A sequence that moves keeps its images.
func TestImagesMove(t *testing.T) {
	w := newWorld(t)
	w.opts.StepTime = func(int, int) time.Duration { return 4 * time.Millisecond }
	a := w.album()
	enc := w.start("worker-1", cluster.RoleEncode, sees(&tower{}))
	one, two := w.start("worker-2", cluster.RoleDecode, sees(nil)), w.start("worker-3", cluster.RoleDecode, sees(nil))
	req := request("r", prompt(seeded(t), 200), 400)
	means := a.illustrate(&req, a.put("x", 20, 100))
	done := make(chan followed, 1)
	go func() { done <- w.follow(t.Context(), "worker-2", req) }()
	eventually(t, "it generates", func() bool {
		select {
		case got := <-done:
			t.Fatalf("it ended before it could move: %+v, %v", got, got.err)
		default:
		}
		return one.engine().Stats().GeneratedTotal > 5
	})
	one.drain(t)
	got := <-done
	check(t, got.result, means, 400)
	if got.moves != 1 || got.replays != 0 {
		t.Errorf("moved %d times, replayed %d times", got.moves, got.replays)
	}
	one.drained(t)
	restful(t, two, enc)
}
