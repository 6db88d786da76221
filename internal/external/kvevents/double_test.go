package kvevents

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dynctl/dynctl/internal/external/kvevents/zmtp"
	"github.com/dynctl/dynctl/internal/patience"
)

var generous = zmtp.Limits{Message: 1 << 24, Frames: 8, Begun: patience.Soon}

// double is a server that publishes KV events, and gives them again.
type double struct {
	t       *testing.T
	topic   string
	ln, rep net.Listener // of publications and replays
	work    sync.WaitGroup

	mu      sync.Mutex
	next    uint64
	kept    [][]byte // messages since next-len(kept)
	subs    map[*zmtp.Conn]net.Conn
	replays int
	// How it replays.
	old     bool // without the topic
	noEnd   bool
	mute    bool
	losing  bool // every second message
	refused bool
	lags    int           // messages that it does not have yet
	held    chan struct{} // what it replays is what it has when this is closed
}

// newDouble starts a server. It listens for subscribers unless they are to be connected.
func newDouble(t *testing.T, connects bool) *double {
	d := &double{t: t, subs: map[*zmtp.Conn]net.Conn{}}
	d.rep = d.listen(d.answer)
	if !connects {
		d.ln = d.listen(d.serve)
	}
	t.Cleanup(func() {
		d.hangUp()
		d.rep.Close()
		if d.ln != nil {
			d.ln.Close()
		}
		d.work.Wait()
	})
	return d
}

func (d *double) listen(each func(net.Conn)) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	d.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d.work.Go(func() {
				defer c.Close()
				each(c)
			})
		}
	})
	return ln
}

func (d *double) endpoint() string { return "tcp://" + d.ln.Addr().String() }
func (d *double) replay() string   { return "tcp://" + d.rep.Addr().String() }

// dial connects to a follower that listens.
func (d *double) dial(addr net.Addr) {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		d.t.Fatal(err)
	}
	d.work.Go(func() {
		defer c.Close()
		d.serve(c)
	})
}

// serve has a subscriber get what is published.
func (d *double) serve(c net.Conn) {
	z, err := zmtp.Open(c, zmtp.Pub, generous, time.Now().Add(patience.Soon))
	if err != nil {
		return
	}
	if _, err := z.Receive(time.Time{}); err != nil { // the subscription
		return
	}
	d.mu.Lock()
	d.subs[z] = c
	d.mu.Unlock()
	_, _ = z.Receive(time.Time{}) // until it leaves
	d.mu.Lock()
	delete(d.subs, z)
	d.mu.Unlock()
}

// answer replays messages.
func (d *double) answer(c net.Conn) {
	d.mu.Lock()
	d.replays++
	mute, refused, held := d.mute, d.refused, d.held
	d.mu.Unlock()
	if refused {
		return
	}
	z, err := zmtp.Open(c, zmtp.Router, generous, time.Now().Add(patience.Soon))
	if err != nil {
		return
	}
	ask, err := z.Receive(time.Time{})
	if err != nil || len(ask) != 2 || len(ask[0]) != 0 || len(ask[1]) != 8 {
		d.t.Errorf("it is asked for %q: %v", ask, err)
		return
	}
	if held != nil {
		<-held
	}
	if !mute {
		d.mu.Lock()
		defer d.mu.Unlock()
		from := binary.BigEndian.Uint64(ask[1])
		first := d.next - uint64(len(d.kept))
		for i, payload := range d.kept[:max(0, len(d.kept)-d.lags)] {
			if seq := first + uint64(i); seq >= from && (!d.losing || i%2 == 0) {
				d.reply(z, seq, payload)
			}
		}
		if !d.noEnd {
			d.reply(z, math.MaxUint64, nil)
		}
	}
	_, _ = z.Receive(time.Now().Add(patience.Soon)) // until it leaves
}

func (d *double) reply(z *zmtp.Conn, seq uint64, payload []byte) {
	number := binary.BigEndian.AppendUint64(nil, seq)
	if d.old {
		_ = z.Send(nil, number, payload)
	} else {
		_ = z.Send(nil, []byte(d.topic), number, payload)
	}
}

// await waits for subscribers.
func (d *double) await(n int) {
	d.t.Helper()
	patience.Until(d.t, "subscribers", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.subs) == n
	})
}

// hold has replays wait until release, and awaited tells when one more does.
func (d *double) hold() (awaited, release func()) {
	held := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.replays
	d.held = held
	awaited = func() {
		d.t.Helper()
		patience.Until(d.t, "a replay", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.replays > before
		})
	}
	release = sync.OnceFunc(func() { close(held) })
	d.t.Cleanup(release) // before the double's own, which awaits the replays
	return awaited, release
}

// lose publishes events that nobody gets.
func (d *double) lose(events ...any) { d.keep(encode(d.t, events...)) }

func (d *double) keep(payload []byte) (seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = append(d.kept, payload)
	d.next++
	return d.next - 1
}

// publish sends events to the subscribers.
func (d *double) publish(events ...any) { d.send(encode(d.t, events...)) }

func (d *double) send(payload []byte) {
	seq := d.keep(payload)
	d.mu.Lock()
	defer d.mu.Unlock()
	for z := range d.subs {
		_ = z.Send([]byte(d.topic), binary.BigEndian.AppendUint64(nil, seq), payload)
	}
}

// set changes the server.
func (d *double) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// restart begins with the first message again.
func (d *double) restart() { d.set(func() { d.next, d.kept = 0, nil }) }

// hangUp closes the connections to subscribers.
func (d *double) hangUp() {
	d.set(func() {
		for z, c := range d.subs {
			_ = c.Close()
			delete(d.subs, z)
		}
	})
}

// encode makes the payload of a message.
func encode(t testing.TB, events ...any) []byte {
	raw, err := msgpack.Marshal([]any{1764489600.5, events, 0})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// block is a block of 16 equal tokens behind a parent; 0 means none.
func block(hash, parent uint64, token int) []any {
	var p any
	if parent != 0 {
		p = parent
	}
	return []any{"BlockStored", []uint64{hash}, p, slices.Repeat([]int{token}, 16), 16, nil, "GPU"}
}

func gone(hashes ...uint64) []any { return []any{"BlockRemoved", hashes, "GPU"} }

// start runs a follower until the test ends.
func start(t *testing.T, cfg Config, change func(*Follower)) *Follower {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.times.retryMin, f.times.pollMin = time.Millisecond, time.Millisecond
	f.times.retryMax, f.times.pollMax = 20*time.Millisecond, 20*time.Millisecond
	if change != nil {
		change(f)
	}
	running := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(running)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-running:
		case <-time.After(patience.Soon):
			t.Error("Run does not end")
		}
	})
	return f
}

func config(t *testing.T, d *double) Config {
	cfg := Config{BlockSize: 16, HashSeed: seed, Sink: newIndex(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if d != nil {
		cfg.Replay = d.replay()
		if d.ln != nil {
			cfg.Endpoint = d.endpoint()
		} else {
			cfg.Endpoint = "tcp://*:0"
		}
	}
	return cfg
}

// holds waits until the follower knows of so many router blocks, and of figures.
func holds(t *testing.T, f *Follower, blocks int, also func(Figures) bool) {
	t.Helper()
	end := time.Now().Add(patience.Soon)
	for ; ; time.Sleep(time.Millisecond) {
		n := f.Figures()
		if n.Blocks == blocks && (also == nil || also(n)) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("never %d blocks: %+v", blocks, n)
		}
	}
	hashes, err := f.Resident(t.Context(), func() {})
	if err != nil || len(hashes) != blocks {
		t.Fatalf("%d blocks are resident, %v", len(hashes), err)
	}
}
