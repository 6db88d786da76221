package wire

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

var ends = Ends{From: nixl.Identity{Name: "a", Incarnation: "1", HostID: "h"}, To: nixl.Identity{Name: "b", Incarnation: "2"}}

// FuzzCodecs parses arbitrary bytes; what is taken is encoded to the same, and the rest is
// refused as a violation.
func FuzzCodecs(f *testing.F) {
	desc := nixl.Desc{Addr: 1 << 20, Len: 64, DevID: 3}
	f.Add(EncodeAccess(nixl.TicketID{1}, []nixl.Desc{desc, {Addr: 3, Len: 4}}))
	f.Add(EncodeProbe(nixl.Probe{Ticket: nixl.TicketID{1}, Desc: desc, Sum: 7}))
	f.Add(ends.Append(nil))
	f.Add(append(ends.Append(nil), "behind"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(what string, err error, again []byte) {
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%s is encoded as %x, was %x", what, again, b)
			}
			if err != nil && !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v", what, err)
			}
		}
		ticket, descs, err := ParseAccess(b)
		check("access", err, EncodeAccess(ticket, descs))
		p, err := ParseProbe(b)
		check("probe", err, EncodeProbe(p))
		e, rest, err := TakeEnds(b)
		check("ends", err, append(e.Append(nil), rest...))
		if s := Printable(b); strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("printable: %q", s)
		}
	})
}

func TestRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"no descriptor":          EncodeAccess(nixl.TicketID{1}, nil),
		"half a descriptor":      EncodeAccess(nixl.TicketID{1}, []nixl.Desc{{Addr: 1, Len: 2}})[:30],
		"an empty descriptor":    EncodeAccess(nixl.TicketID{1}, []nixl.Desc{{Addr: 1, Len: 2}, {Addr: 1}}),
		"lengths without a sum":  EncodeAccess(nixl.TicketID{1}, []nixl.Desc{{Len: 1 << 63}, {Len: 1 << 63}}),
		"memory behind the last": EncodeAccess(nixl.TicketID{1}, []nixl.Desc{{Addr: 1<<64 - 1, Len: 2}}),
		"nothing":                nil,
	} {
		if _, _, err := ParseAccess(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nobody := ends
	nobody.From.Name = ""
	if _, _, err := TakeEnds(nobody.Append(nil)); !errors.Is(err, ErrProtocol) {
		t.Errorf("nobody connects: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		self nixl.Identity
		want string
	}{
		{nixl.Identity{Name: "b", Incarnation: "2"}, ""},
		{nixl.Identity{Name: "c", Incarnation: "2"}, `this is agent "c", not "b"`},
		{nixl.Identity{Name: "b", Incarnation: "3"}, `agent "b" was restarted`},
	} {
		err := ends.Check(tc.self)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !errors.Is(err, nixl.ErrMismatch)) {
			t.Errorf("%+v: %v, want %q", tc.self, err, tc.want)
		}
	}
}

// A peer reports errors, whatever it sends.
func TestResultError(t *testing.T) {
	for status, want := range map[nixl.Status]nixl.Status{nixl.Success: nixl.Success, nixl.ErrNotAllowed: nixl.ErrNotAllowed, 1: nixl.ErrUnknown, -128: nixl.ErrUnknown} {
		err := ResultError("p", status, []byte("why\x1b"))
		if nixl.StatusOf(err) != want || err != nil && (!strings.Contains(err.Error(), `why\x1b`) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %v", status, err)
		}
	}
	long := errors.New(strings.Repeat("x", 4*MaxText))
	if n := len(Text(long)); n != MaxText {
		t.Errorf("a text of %d bytes", n)
	}
}

func TestSecret(t *testing.T) {
	if !(Secret{1}).Equal(Secret{1}) || (Secret{1}).Equal(Secret{2}) {
		t.Error("secrets are compared wrongly")
	}
}

func TestSessions(t *testing.T) {
	var ss Sessions[string]
	one, two := nixl.Remote{Generation: 1}, nixl.Remote{Generation: 2}
	used := ""
	use := func(s string) { used = s }
	if _, err := ss.Use(one, use); nixl.StatusOf(err) != nixl.ErrNotFound || used != "" {
		t.Errorf("before it is attached: %v, %q", err, used)
	}
	if !ss.Attach(one, "a") || !ss.Attach(two, "b") {
		t.Error("not attached")
	}
	if s, err := ss.Use(two, use); err != nil || s != "b" || used != "b" {
		t.Errorf("session %q, used %q, %v", s, used, err)
	}
	if s, found := ss.Forget(two); s != "b" || !found {
		t.Errorf("forgot %q, %v", s, found)
	}
	if _, found := ss.Forget(two); found {
		t.Error("forgotten twice")
	}
	if all := ss.Close(); len(all) != 1 || all[0] != "a" {
		t.Errorf("closed %q", all)
	}
	if _, err := ss.Use(one, use); nixl.StatusOf(err) != nixl.ErrCanceled || ss.Attach(one, "c") || len(ss.Close()) != 0 {
		t.Errorf("after Close: %v", err)
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct {
		listen, advertise string
		want              nixl.Status
		host              string
	}{
		{"127.0.0.1:0", "", nixl.Success, "127.0.0.1:"},
		{"127.0.0.1:0", "gpu-7", nixl.Success, "gpu-7:"},
		{":0", "", nixl.ErrInvalidParam, ""},
		{":0", strings.Repeat("x", 256), nixl.ErrInvalidParam, ""},
		{"127.0.0.1", "", nixl.ErrUnknown, ""},
	} {
		ln, addr, err := Listen(c.listen, c.advertise)
		if nixl.StatusOf(err) != c.want || !strings.HasPrefix(addr, c.host) {
			t.Errorf("%s, %.9s: %q, %v", c.listen, c.advertise, addr, err)
		}
		if err == nil {
			_ = ln.Close()
		}
	}
}

// The agents of a host are given one address: each takes a port of its own from there on.
func TestListenTakesTheNextPort(t *testing.T) {
	first, addr, err := Listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	second, next, err := Listen(addr, "gpu-7")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	_, a, _ := net.SplitHostPort(addr)
	host, b, _ := net.SplitHostPort(next)
	from, _ := strconv.Atoi(a)
	got, _ := strconv.Atoi(b)
	if host != "gpu-7" || got <= from || got >= from+Ports {
		t.Errorf("after %s comes %s", addr, next)
	}
}

// A goodbye of an agent that is closed in order is told from others.
func TestGoodbye(t *testing.T) {
	if err := Goodbye([]byte(AgentCloses)); !errors.Is(err, nixl.ErrRemoteClosed) || nixl.StatusOf(err) != nixl.ErrRemoteDisconnect {
		t.Errorf("got %v", err)
	}
	if err := Goodbye([]byte("peer was \x1b forgotten")); errors.Is(err, nixl.ErrRemoteClosed) || nixl.StatusOf(err) != nixl.ErrRemoteDisconnect || err.Error() != `peer closed the connection: peer was \x1b forgotten: remote disconnected` {
		t.Errorf("got %v", err)
	}
}
