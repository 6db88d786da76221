package nixl_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
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
			var log bytes.Buffer
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
	var log bytes.Buffer
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
