package kvevents

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/external/kvevents/zmtp"
	"github.com/dynctl/dynctl/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modes runs a test with a server that listens, and with one that connects. prepare, if there,
// is called before they meet.
func modes(t *testing.T, prepare func(*double, *Config), run func(*testing.T, *double, *Follower)) {
	for name, connects := range map[string]bool{"listens": false, "connects": true} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, connects)
			cfg := config(t, d)
			if prepare != nil {
				prepare(d, &cfg)
			}
			f := start(t, cfg, nil)
			if connects {
				d.dial(f.Addrs()[0])
			}
			d.await(1)
			run(t, d, f)
		})
	}
}

func TestFollow(t *testing.T) {
	modes(t, func(d *double, c *Config) {
		d.topic, c.Topic, c.Replay = "kv@pod@model", "kv@", ""
	}, func(t *testing.T, d *double, f *Follower) {
		d.publish(block(1, 0, 1), block(2, 1, 2), block(3, 2, 3))
		holds(t, f, 3, nil)
		d.publish(gone(3))
		holds(t, f, 2, nil)
		d.publish([]any{"AllBlocksCleared"})
		holds(t, f, 0, func(n Figures) bool { return n.Publishers == 1 && n.Batches == 3 && n.Events == 5 && n.Forgotten == 0 })
	})
}

// What was published before the connection is replayed, once.
func TestBeforeTheConnection(t *testing.T) {
	for _, old := range []bool{false, true} {
		modes(t, func(d *double, _ *Config) {
			d.old = old
			d.lose(block(1, 0, 1))
			d.lose(block(2, 1, 2))
		}, func(t *testing.T, d *double, f *Follower) {
			holds(t, f, 2, nil)
			d.publish(block(3, 2, 3))
			d.publish(gone(2))
			holds(t, f, 2, func(n Figures) bool { return n.Batches == 4 && n.Gaps == 0 })
		})
	}
}

// Messages that come live while they are replayed count once.
func TestLiveWhileReplayed(t *testing.T) {
	d := newDouble(t, false)
	awaited, release := d.hold()
	f := start(t, config(t, d), nil)
	d.await(1)
	awaited()
	d.publish(block(1, 0, 1))
	d.publish(block(2, 1, 2))
	release()
	holds(t, f, 2, nil)
	d.publish(block(3, 2, 3)) // behind those that came twice
	holds(t, f, 3, func(n Figures) bool { return n.Batches == 3 && n.Gaps == 0 })
	awaited, release = d.hold()
	d.lose(block(4, 3, 4))
	d.publish(block(5, 4, 5))
	awaited()
	d.publish(block(6, 5, 6))
	release()
	holds(t, f, 6, nil)
	d.publish(block(7, 6, 7))
	holds(t, f, 7, func(n Figures) bool {
		return n.Batches == 7 && n.Gaps == 1 && n.Replays == 1 && n.Restarts == 0 && n.Forgotten == 0
	})
}

// Lost messages are asked for again.
func TestGap(t *testing.T) {
	modes(t, nil, func(t *testing.T, d *double, f *Follower) {
		d.publish(block(1, 0, 1))
		holds(t, f, 1, nil)
		d.lose(block(2, 1, 2))
		d.lose(gone(1))
		d.publish(block(3, 2, 3))
		d.publish(block(4, 3, 4))
		holds(t, f, 3, func(n Figures) bool { return n.Gaps == 1 && n.Replays == 1 && n.Forgotten == 0 && n.Restarts == 0 })
	})
}

// Where lost messages cannot be had, the blocks are forgotten, and what can be had is learned.
func TestGapWithoutReplay(t *testing.T) {
	for name, breaks := range map[string]func(*double){
		"no endpoint":  nil,
		"mute":         func(d *double) { d.mute = true },
		"refused":      func(d *double) { d.refused = true },
		"loses, too":   func(d *double) { d.losing = true },
		"no end":       func(d *double) { d.noEnd = true },
		"lags behind":  func(d *double) { d.lags = 2 },
		"buffer ended": func(d *double) { d.kept = nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, false)
			cfg := config(t, d)
			if breaks == nil {
				cfg.Replay = ""
			}
			f := start(t, cfg, func(f *Follower) { f.times.replayIdle = 50 * time.Millisecond })
			d.await(1)
			d.publish(block(1, 0, 1), block(2, 1, 2))
			holds(t, f, 2, nil)
			d.lose(gone(1))
			d.lose(gone(2))
			if breaks != nil {
				d.set(func() { breaks(d) })
			}
			d.publish(block(5, 0, 5))
			holds(t, f, 1, func(n Figures) bool { return n.Gaps == 1 && n.Replays == 0 && n.Forgotten > 0 })
			d.publish(block(6, 5, 6))
			holds(t, f, 2, nil)
		})
	}
}

// One replay after a gap is enough for a while.
func TestReplaysHaveACooldown(t *testing.T) {
	d := newDouble(t, false)
	f := start(t, config(t, d), nil)
	d.await(1)
	for i, batches := range []uint64{1, 3, 4} {
		d.publish(block(uint64(2*i+1), 0, i))
		holds(t, f, 1, func(n Figures) bool { return n.Gaps == uint64(i) && n.Batches == batches })
		d.lose(gone(uint64(2*i + 1)))
	}
	if n := f.Figures(); n.Replays != 1 || d.replays != 2 {
		t.Errorf("%d replays after gaps, %d connections", n.Replays, d.replays)
	}
}

// A server that begins anew has other blocks, however far it has come meanwhile.
func TestRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		published int // after the restart, before it is seen
		hangsUp   bool
		replay    bool
	}{
		"at once": {0, false, true}, "reconnects": {0, true, true}, "reconnects later": {1, true, true}, "reconnects as far": {3, true, true},
		"reconnects further": {7, true, true}, "without replay": {0, true, false}, "at once without replay": {0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, false)
			cfg := config(t, d)
			if !tc.replay {
				cfg.Replay = ""
			}
			f := start(t, cfg, nil)
			d.await(1)
			for i := range uint64(3) {
				d.publish(block(i+1, i, int(i)))
			}
			holds(t, f, 3, nil)
			d.restart()
			for i := range tc.published {
				d.lose(block(uint64(100+i), 0, 100+i))
			}
			if tc.hangsUp {
				d.hangUp()
				d.await(1)
			}
			d.publish(block(200, 0, 200))
			holds(t, f, tc.published+1, func(n Figures) bool { return n.Restarts == 1 && n.Forgotten >= 1 })
		})
	}
}

// A restart is seen behind a proxy, too, which keeps the connection, and where the numbers are
// those of messages that were replayed.
func TestRestartAfterReplay(t *testing.T) {
	d := newDouble(t, false)
	d.lose(block(1, 0, 1))
	d.lose(block(2, 1, 2))
	f := start(t, config(t, d), nil)
	d.await(1)
	d.publish(block(3, 2, 3))
	holds(t, f, 3, nil)
	d.restart()
	d.publish(block(4, 0, 4))
	holds(t, f, 1, func(n Figures) bool { return n.Restarts == 1 })
}

// A connection that breaks costs nothing if nothing is lost, or all is replayed.
func TestReconnect(t *testing.T) {
	for _, replay := range []bool{false, true} {
		d := newDouble(t, false)
		cfg := config(t, d)
		if !replay {
			cfg.Replay = ""
		}
		f := start(t, cfg, nil)
		d.await(1)
		d.publish(block(1, 0, 1))
		holds(t, f, 1, nil)
		want := 2
		d.hangUp()
		if replay {
			d.lose(block(2, 1, 2))
			want = 3
		}
		d.await(1)
		d.publish(block(3, 1, 3))
		holds(t, f, want, func(n Figures) bool { return n.Forgotten == 0 && n.Restarts == 0 && n.Publishers == 1 })
	}
}

// A server that has connected takes its blocks along when it leaves.
func TestLeave(t *testing.T) {
	d := newDouble(t, true)
	f := start(t, config(t, d), nil)
	d.dial(f.Addrs()[0])
	d.await(1)
	d.publish(block(1, 0, 1))
	holds(t, f, 1, nil)
	d.hangUp()
	holds(t, f, 0, func(n Figures) bool { return n.Publishers == 0 })
}

// A block is held while one rank holds it. Each rank has a port.
func TestRanks(t *testing.T) {
	a, b := newDouble(t, true), newDouble(t, true)
	cfg := config(t, a)
	cfg.Ranks, cfg.Replay = 2, ""
	f := start(t, cfg, nil)
	for i, d := range []*double{a, b} {
		d.dial(f.Addrs()[i])
		d.await(1)
	}
	a.publish(block(1, 0, 1), block(2, 1, 2))
	holds(t, f, 2, nil)
	b.publish(block(1, 0, 1), block(3, 1, 3))
	holds(t, f, 3, nil)
	a.publish(gone(1))
	holds(t, f, 3, func(n Figures) bool { return n.Events == 5 })
	a.publish([]any{"AllBlocksCleared"})
	holds(t, f, 2, nil)
	b.publish(gone(1, 3))
	holds(t, f, 0, nil)
}

// Nonsense is counted, forgets what it may have been about, and stops nobody.
func TestUndecodable(t *testing.T) {
	modes(t, nil, func(t *testing.T, d *double, f *Follower) {
		d.publish(block(1, 0, 1), []any{"BlockPinned", 1, "x"}, map[string]any{"type": "BlockPinned", "y": 2})
		holds(t, f, 1, func(n Figures) bool { return n.Unknown == 2 })
		d.send([]byte("no MessagePack"))
		holds(t, f, 0, func(n Figures) bool { return n.Undecodable == 1 && n.Forgotten == 1 })
		d.publish(block(1, 0, 1))
		holds(t, f, 1, func(n Figures) bool { return n.Gaps == 0 })
		d.set(func() {
			for z := range d.subs {
				_ = z.Send([]byte("one frame"))
				_ = z.Send(nil, []byte("short"), nil)
			}
		})
		d.publish(block(2, 1, 2))
		holds(t, f, 2, func(n Figures) bool { return n.Undecodable == 3 })
	})
}

// A message beyond the bounds ends the connection, which is made again.
func TestHugeMessage(t *testing.T) {
	d := newDouble(t, false)
	f := start(t, config(t, d), nil)
	d.await(1)
	d.publish(block(1, 0, 1))
	holds(t, f, 1, nil)
	d.set(func() {
		for z, c := range d.subs {
			_, _ = c.Write(binary.BigEndian.AppendUint64([]byte{2}, 1<<40))
			delete(d.subs, z)
		}
	})
	d.await(1)
	d.publish(block(2, 1, 2))
	holds(t, f, 2, nil)
}

// Forget gives all up, and the next message is as good as the first.
func TestForget(t *testing.T) {
	d := newDouble(t, false)
	cfg := config(t, d)
	cfg.Replay = "" // the first message comes once, not also as what the server had at first
	f := start(t, cfg, nil)
	d.await(1)
	d.publish(block(1, 0, 1))
	holds(t, f, 1, nil)
	f.Forget()
	holds(t, f, 0, nil)
	d.lose(block(2, 1, 2))
	d.publish(block(3, 0, 3))
	holds(t, f, 1, func(n Figures) bool { return n.Gaps == 0 })
	called := false
	if _, err := f.Resident(t.Context(), func() { called = true }); err != nil || !called {
		t.Errorf("called %v, %v", called, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Resident(ctx, func() {}); err == nil {
		t.Error("no error after the end of the context")
	}
}

// Who does not greet, or greets as something else, does not keep others out, and too many
// connections are refused.
func TestStrangers(t *testing.T) {
	d := newDouble(t, true)
	f := start(t, config(t, d), nil)
	var held []net.Conn
	for range maxPublishers + 4 {
		c, err := net.Dial("tcp", f.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	last := held[len(held)-1]
	_ = last.SetReadDeadline(time.Now().Add(patience.Soon))
	if n, err := last.Read(make([]byte, 100)); n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("one too many reads %d bytes, %v", n, err)
	}
	for _, c := range held {
		c.Close()
	}
	patience.Until(t, "the server is followed", func() bool {
		c, err := net.Dial("tcp", f.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = zmtp.Open(c, zmtp.Pub, generous, time.Now().Add(time.Second))
		return err == nil
	})
}

func TestConfigs(t *testing.T) {
	for endpoint, want := range map[string]string{
		"tcp://host:5557": "", "tcp://*:0": "", "tcp://[::1]:5557": "",
		"host:5557": "of the form", "tcp://host": "of the form", "tcp://:5557": "of the form", "tcp://host:http": "of the form",
		"tcp://host:0": "no port", "tcp://host:-1": "no ports", "tcp://host:65535": "no ports", "": "neither",
	} {
		cfg := config(t, nil)
		cfg.Endpoint, cfg.Ranks = endpoint, 2
		f, err := New(cfg)
		if err == nil {
			f.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", endpoint, err, want)
		}
	}
	for name, change := range map[string]func(*Config){
		"block size": func(c *Config) { c.BlockSize = 0 }, "large blocks": func(c *Config) { c.BlockSize = 1 << 20 },
		"ranks": func(c *Config) { c.Ranks = 1000 }, "replay": func(c *Config) { c.Replay = "tcp://*:1" }, "no replay": func(c *Config) { c.Replay = "x" },
	} {
		cfg := config(t, nil)
		cfg.Endpoint = "tcp://host:1"
		if change(&cfg); true {
			if _, err := New(cfg); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
	// Listening at one address.
	cfg := config(t, nil)
	cfg.Endpoint, cfg.Listen = "tcp://127.0.0.1:0", true
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Addrs()[0].(*net.TCPAddr); !got.IP.IsLoopback() || got.Port == 0 {
		t.Errorf("it listens at %v", got)
	}
	// A port that is taken.
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	cfg = config(t, nil)
	cfg.Endpoint = "tcp://*:" + port
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "listen for the server") {
		t.Errorf("got %v", err)
	}
}

// Where an adapter is served in place of its base, its blocks are those that plain prompts find.
func TestAdapterInPlaceOfItsBase(t *testing.T) {
	d := newDouble(t, false)
	f := start(t, config(t, d), func(f *Follower) { f.Serves("tuned") })
	base, tuned := block(1, 0, 1), append(block(2, 0, 1), "tuned")
	d.publish(base, tuned)
	holds(t, f, 1, func(n Figures) bool { return n.Ignored == 1 })
	got, err := f.Resident(t.Context(), func() {})
	want := blockhash.Local(slices.Repeat([]uint32{1}, 16), seed)
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("resident %x, want %x, %v", got, want, err)
	}
}
