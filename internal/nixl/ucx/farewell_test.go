//go:build linux

package ucx

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// down waits for the end of a connection.
func down(t *testing.T, a *nixl.Agent) nixl.PeerDown {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		return d
	case <-time.After(patience):
		t.Fatal("no event")
		return nixl.PeerDown{}
	}
}

// The socket's end may be seen before the last message of UCX, or that may get lost.
func TestLastWordOfAnInitiator(t *testing.T) {
	v := newVictim(t, 4096)
	r := v.enter(t)
	say := func(word error) {
		t.Helper()
		if err := writeGreeting(r.nc, frame{kind: kindBye, body: []byte(wire.LastWord(word))}); err != nil {
			t.Fatal(err)
		}
	}
	say(nixl.ErrCanceled)
	nixltest.Poll(t, "the word is heard", func() (heard bool) {
		v.tr.engine.call(func() {
			for in := range v.tr.inbound {
				heard = in.word != nil
			}
		})
		return heard
	})
	for range 2 {
		ticked := make(chan struct{})
		v.tr.engine.do(func() { v.tr.engine.later(func() { close(ticked) }) })
		<-ticked
	}
	r.say(frame{kind: kindNotify, id: 7, body: []byte("sent before")})
	r.next(kindResult, 7)
	r.say(frame{kind: kindBye, body: []byte(wire.LastWord(nixl.ErrCanceled))})
	r.wantEnd()
	if d := down(t, v.agent); !d.Inbound || d.Cause != nil {
		t.Errorf("event = %+v", d)
	}

	// Nothing follows the word.
	r = v.enter(t)
	say(nixl.ErrCanceled)
	_ = r.nc.Close()
	if d := down(t, v.agent); !d.Inbound || d.Cause != nil {
		t.Errorf("event = %+v", d)
	}
	r = v.enter(t)
	say(nixl.ErrCanceled)
	r.h.e.call(func() { r.port.close(true) }) // which breaks the connection of UCX
	if d := down(t, v.agent); !d.Inbound || d.Cause != nil {
		t.Errorf("event = %+v", d)
	}
	r = v.enter(t)
	say(nixl.ErrUnused) // of which nobody hears
	_ = r.nc.Close()
	r.wantEnd()
	nixltest.Poll(t, "the connection ends", func() bool { return len(v.agent.Peers()) == 0 })

	r = v.enter(t)
	_ = r.nc.Close() // without a word
	if d := down(t, v.agent); !d.Inbound || !errors.Is(d.Cause, nixl.ErrRemoteDisconnect) {
		t.Errorf("event = %+v", d)
	}
	if n := v.agent.Stats().PeerDowns; n != 1 {
		t.Errorf("%d broken connections are counted", n)
	}

	r = v.enter(t)
	if err := v.agent.Close(); err != nil {
		t.Error(err)
	}
	r.wantEnd()
	if f, err := readGreeting(bytes.NewReader(r.said)); err != nil || f.kind != kindBye || !errors.Is(wire.Goodbye(f.body), nixl.ErrRemoteClosed) {
		t.Errorf("the target says %q, %v", r.said, err)
	}
}

func TestLastWordOfATarget(t *testing.T) {
	m := newImpostor(t)
	a := nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{New(overTCP())} }}.Agent(t, "a")
	for _, closes := range []bool{true, false} {
		m.answers(m.tell, func(r *raw, f frame) {
			if f.kind != kindNotify {
				return
			}
			if closes { // nothing of UCX follows, neither the message nor an end
				_ = writeGreeting(r.nc, frame{kind: kindBye, body: []byte(wire.AgentCloses)})
				return
			}
			_ = r.nc.Close()
		})
		nixltest.Load(t, a, m.real)
		err := a.Notify(nixltest.Context(t), "impostor", nil)
		if d := down(t, a); d.Inbound || errors.Is(d.Cause, nixl.ErrRemoteClosed) != closes || !errors.Is(d.Cause, nixl.ErrRemoteDisconnect) {
			t.Errorf("closes %t: event = %+v", closes, d)
		}
		if errors.Is(err, nixl.ErrRemoteClosed) != closes || nixl.StatusOf(err) != nixl.ErrRemoteDisconnect {
			t.Errorf("closes %t: notify = %v", closes, err)
		}
	}

	m.answers(m.tell, func(r *raw, f frame) {
		if f.kind == kindNotify {
			r.sayNow(frame{kind: kindResult, id: f.id})
		}
	})
	nixltest.Load(t, a, m.real)
	if err := a.Notify(nixltest.Context(t), "impostor", nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Rest("impostor"); err != nil {
		t.Fatal(err)
	}
	select {
	case word := <-m.words:
		if !errors.Is(wire.Left([]byte(word)), nixl.ErrUnused) {
			t.Errorf("the initiator says %q", word)
		}
	case <-time.After(patience):
		t.Error("the initiator says nothing")
	}
}
