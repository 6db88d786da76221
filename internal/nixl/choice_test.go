package nixl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/patience"
)

// crooked is a transport that can be made to fail in one way or another.
type crooked struct {
	nixl.Transport
	garbles bool  // what it lends does not have the content it says
	reach   error // why it does not reach a peer
	usable  error
}

func (c *crooked) OpenProbe(ctx context.Context, r nixl.Remote) (nixl.Probe, error) {
	p, err := c.Transport.OpenProbe(ctx, r)
	if c.garbles {
		p.Sum ^= 1
	}
	return p, err
}

func (c *crooked) Reach(r nixl.Remote) (string, error) {
	if c.reach != nil {
		return "", c.reach
	}
	return c.Transport.Reach(r)
}

func (c *crooked) Usable() error { return c.usable }

// crookedFirst makes agents whose local transport is crooked and whose second is tcp.
func crookedFirst(how crooked) nixltest.Env {
	reg := local.NewRegistry(0)
	return nixltest.Env{Transports: func() []nixl.Transport {
		first := how
		first.Transport = reg.Transport()
		return []nixl.Transport{&first, tcp.New(tcp.Options{})}
	}}
}

func verdicts(p nixl.PeerInfo) string {
	var out []string
	for _, c := range p.Candidates {
		out = append(out, fmt.Sprintf("%s %s", c.Transport, c.Verdict))
	}
	return strings.Join(out, ", ")
}

// TestFallback checks that what should have been reached another way is not kept
// quiet about: one warning, a count, and a verdict on each transport.
func TestFallback(t *testing.T) {
	for _, c := range []struct {
		name     string
		reach    error
		verdicts string
		warnings int
	}{
		{"nobody expects it", fmt.Errorf("elsewhere: %w", nixl.ErrNotSupported), "local unsupported, tcp chosen", 0},
		{"it should have worked", fmt.Errorf("broken: %w", nixl.ErrBackend), "local unreachable, tcp chosen", 1},
		{"it works", nil, "local chosen, tcp not_needed", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log patience.Buffer
			e := crookedFirst(crooked{reach: c.reach})
			a := e.Agent(t, "a", func(cfg *nixl.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			b := e.Agent(t, "b")
			nixltest.Load(t, a, b)
			p := a.Peers()[0]
			if verdicts(p) != c.verdicts {
				t.Errorf("candidates: %s", verdicts(p))
			}
			if err := a.Invalidate("b"); err != nil {
				t.Fatal(err)
			}
			nixltest.Load(t, a, b)
			// Forgotten in between: it is said again; counted it is in any case.
			if n := strings.Count(log.String(), "level=WARN"); n != 2*c.warnings {
				t.Errorf("%d warnings:\n%s", n, log.String())
			}
			n := a.Stats().Fallbacks[nixl.Fallback{Wanted: "local", Used: "tcp", Status: nixl.ErrBackend}]
			if int(n) != 2*c.warnings || len(a.Stats().Fallbacks) != c.warnings {
				t.Errorf("fallbacks = %v", a.Stats().Fallbacks)
			}
		})
	}
}

// TestFallbackIsSaidOnce loads a peer again that had failed.
func TestFallbackIsSaidOnce(t *testing.T) {
	var log patience.Buffer
	e := crookedFirst(crooked{reach: fmt.Errorf("broken: %w", nixl.ErrBackend)})
	a := e.Agent(t, "a", func(cfg *nixl.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b := e.Agent(t, "b")
	blob := b.Metadata()
	nixltest.Load(t, a, b)
	if err := a.Notify(nixltest.Context(t), "b", nil); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	nixltest.Poll(t, "b has failed", func() bool { return !a.Known("b", "") })
	if _, err := a.LoadRemote(blob); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"nixl peer loaded\""); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// TestProvePath gives up a transport whose self-test fails, and says so.
func TestProvePath(t *testing.T) {
	e := crookedFirst(crooked{garbles: true})
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := nixltest.Region(t, a, 4096)
	lb, mb := nixltest.Region(t, b, 4096)
	nixltest.Load(t, a, b)
	if _, err := a.SelfTest(nixltest.Context(t), "b"); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Fatalf("SelfTest over memory with another content: %v", err)
	}
	old := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, 4096)}, []nixl.Desc{lb.Desc(0, 4096)}, "b", nixl.TransferOpts{})
	res, err := a.ProvePath(nixltest.Context(t), "b")
	if err != nil || res.Transport != "tcp" {
		t.Fatalf("ProvePath() = %+v, %v", res, err)
	}
	p := a.Peers()[0]
	if verdicts(p) != "local disproved, tcp chosen" || p.Transport != "tcp" || p.Test == nil || p.Test.Err != nil {
		t.Errorf("peer = %+v", p)
	}
	if n := a.Stats().Fallbacks[nixl.Fallback{Wanted: "local", Used: "tcp", Status: nixl.ErrMismatch}]; n != 1 {
		t.Errorf("fallbacks = %v", a.Stats().Fallbacks)
	}
	if st := old.Post(); st != nixl.ErrNotFound {
		t.Errorf("post over the transport that was given up = %s", st)
	}
	nixltest.Load(t, a, b) // the same blob again does not bring it back
	nixltest.Fill(ma, 1)
	x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, 4096)}, []nixl.Desc{lb.Desc(0, 4096)}, "b",
		nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, 4096))})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
	nixltest.SameAt(t, b, mb, ma)

	// Without another transport the first stays, unused by whoever asked.
	c := e.Agent(t, "c", func(cfg *nixl.Config) { cfg.Force = []string{"local"} })
	nixltest.Load(t, c, b)
	if _, err := c.ProvePath(nixltest.Context(t), "b"); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("ProvePath without another transport: %v", err)
	}
}

// TestForcedTransports refuses to start with a forced transport that cannot be used,
// and names it.
func TestForcedTransports(t *testing.T) {
	for _, c := range []struct {
		name, force, want string
		usable            error
	}{
		{"all there", "tcp", "", nil},
		{"unknown", "shm", "forced transport shm: this build or system does not have it", nil},
		{"unusable", "local", "forced transport local: cannot be used here: no such device", fmt.Errorf("no such device: %w", nixl.ErrNotSupported)},
		{"another one unusable", "tcp", "", fmt.Errorf("no such device: %w", nixl.ErrNotSupported)},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := crookedFirst(crooked{usable: c.usable})
			a, err := nixl.NewAgent(nixl.Config{Name: "a", Key: nixltest.Key, Transports: e.Transports(), Force: []string{c.force}})
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = a.Close()
				return
			}
			if nixl.StatusOf(err) != nixl.ErrNotSupported || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewAgent(): %v, want %q", err, c.want)
			}
		})
	}
}

// scripted is a transport that shows its host and the peer, and whose jobs a test may
// end in its place.
type scripted struct {
	nixl.Transport
	host   nixl.Host
	remote nixl.Remote
	jobs   atomic.Int32
	ends   func(n int32, j *nixl.Job) (error, bool)
}

func (s *scripted) Start(h nixl.Host) ([]byte, error) {
	s.host = h
	return s.Transport.Start(h)
}

func (s *scripted) Attach(r nixl.Remote) {
	s.remote = r
	s.Transport.Attach(r)
}

func (s *scripted) Submit(r nixl.Remote, j *nixl.Job) {
	if s.ends != nil {
		if err, ends := s.ends(s.jobs.Add(1), j); ends {
			j.Finish(err)
			return
		}
	}
	s.Transport.Submit(r, j)
}

// script makes agents a and b of one process, where a knows b; transport is that of a.
func script(t *testing.T, ends func(n int32, j *nixl.Job) (error, bool)) (a, b *nixl.Agent, transport *scripted) {
	reg := local.NewRegistry(0)
	transport = &scripted{Transport: reg.Transport(), ends: ends}
	e := nixltest.Env{Named: func(name string) []nixl.Transport {
		if name == "a" {
			return []nixl.Transport{transport}
		}
		return []nixl.Transport{reg.Transport()}
	}}
	return e.Agent(t, "a"), e.Agent(t, "b"), transport
}

// A path over which nothing moves any more does not pass because the bytes that were to
// be written are still in the agent's own memory.
func TestSelfTestReadsWhatItWrote(t *testing.T) {
	a, b, transport := script(t, func(n int32, j *nixl.Job) (error, bool) { return nil, n > 1 }) // the first one reads the pattern
	nixltest.Load(t, a, b)
	if _, err := a.SelfTest(nixltest.Context(t), "b"); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("self-test over a path that moves nothing: %v", err)
	}
	if n := transport.jobs.Load(); n < 3 {
		t.Errorf("failed at job %d, before anything was written", n)
	}
}

// A peer whose connection broke is failed at once, and once.
func TestPeerDown(t *testing.T) {
	a, b, transport := script(t, nil)
	nixltest.Load(t, a, b)
	begin := time.Now()
	for range 2 {
		transport.host.PeerDown(transport.remote, errors.New("cable pulled"))
	}
	p := a.Peers()[0]
	if p.State != nixl.PeerFailed || !strings.Contains(p.Reason, "cable pulled") || p.Since.Before(begin) {
		t.Errorf("peer is %s because of %q since %s, want failed since %s", p.State, p.Reason, p.Since, begin)
	}
	if a.Known("b", "") {
		t.Error("a failed peer is known")
	}
	if n := a.Stats().PeerDowns; n != 1 {
		t.Errorf("counted %d times", n)
	}
	if d := <-a.PeerDowns(); d.Peer != "b" || d.Inbound {
		t.Errorf("reported: %+v", d)
	}
}

// A transfer of device memory fails when one of its parts does, and what is left of it
// is not sent.
func TestStagedPartFails(t *testing.T) {
	const parts = 5
	a, b, transport := script(t, func(n int32, j *nixl.Job) (error, bool) { return nixl.ErrMismatch, n == 2 })
	da := nixltest.NewDevice(1, parts*nixl.StagingChunk)
	va := nixltest.RegisterDevice(t, a, da)
	lb, _ := nixltest.Region(t, b, parts*nixl.StagingChunk)
	nixltest.Load(t, a, b)
	x := nixltest.New(t, a, nixl.Write, []nixl.Desc{va.Desc(0, va.Len())}, []nixl.Desc{lb.Desc(0, lb.Len())}, "b",
		nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len()))})
	if err := nixltest.Do(t, x); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("a transfer one part of which failed: %v", err)
	}
	if n := transport.jobs.Load(); n > 3 {
		t.Errorf("%d of %d parts were sent, the second of which failed", n, parts)
	}
}
