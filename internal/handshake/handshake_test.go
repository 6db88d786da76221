package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	testKey   = NewKey(bytes.Repeat([]byte{5}, 32))
	testProto = Protocol{Name: "test\x00\x00", Version: 3}
)

func soon() time.Time { return time.Now().Add(20 * time.Second) }

// sockets returns the two ends of a TCP connection.
func sockets(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

type side struct {
	conn net.Conn
	s    Session
	err  error
}

// shake runs both sides over a connection, and closes it where one side gives up.
func shake(client, server net.Conn, c, s Options) (cs, ss side) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if ss.conn, ss.s, ss.err = Accept(server, s, soon()); ss.err != nil {
			server.Close()
		}
	})
	if cs.conn, cs.s, cs.err = Connect(client, c, soon()); cs.err != nil {
		client.Close()
	}
	wg.Wait()
	return cs, ss
}

func ephemeral(t testing.TB) *tls.Config {
	t.Helper()
	cfg, err := Ephemeral()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestBothSides(t *testing.T) {
	other := NewKey(bytes.Repeat([]byte{6}, 32))
	good := Options{Protocol: testProto, Key: testKey}
	secure := Options{Protocol: testProto, Key: testKey, TLS: ephemeral(t)}
	for _, test := range []struct {
		name           string
		client, server Options
		c, s           error // nil: works
	}{
		{"same key", good, good, nil, nil},
		{"tls", secure, secure, nil, nil},
		{"another key", Options{Protocol: testProto, Key: other}, good, ErrSecret, ErrSecret},
		{"another key, tls", Options{Protocol: testProto, Key: other, TLS: secure.TLS}, secure, ErrSecret, ErrSecret},
		{"another version", Options{Protocol: Protocol{"test\x00\x00", 9}, Key: testKey}, good, ErrVersion, ErrVersion},
		{"another protocol", Options{Protocol: Protocol{"tset\x00\x00", 3}, Key: testKey}, good, io.EOF, ErrForeign},
		{"server wants tls", good, secure, ErrWantsTLS, ErrWantsTLS},
		{"client without a key", Options{Protocol: testProto}, good, ErrNoKey, io.EOF},
		{"server without a key", good, Options{Protocol: testProto}, io.EOF, ErrNoKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, server := sockets(t)
			c, s := shake(client, server, test.client, test.server)
			if !matches(c.err, test.c) || !matches(s.err, test.s) {
				t.Fatalf("client: %v, want %v; server: %v, want %v", c.err, test.c, s.err, test.s)
			}
			if test.c != nil {
				return
			}
			if len(c.s.Key) != 32 || !bytes.Equal(c.s.Key, s.s.Key) {
				t.Error("the sides have different session keys")
			}
			// Not a byte of what follows was taken.
			go func() { _, _ = io.WriteString(s.conn, "after") }()
			got := make([]byte, 5)
			if _, err := io.ReadFull(c.conn, got); err != nil || string(got) != "after" {
				t.Errorf("behind the handshake: %q, %v", got, err)
			}
		})
	}
	t.Run("client wants tls", func(t *testing.T) {
		client, server := sockets(t)
		c, s := shake(client, server, secure, good)
		if c.err == nil || !errors.Is(s.err, ErrForeign) {
			t.Errorf("client: %v, server: %v", c.err, s.err)
		}
	})
}

func matches(err, want error) bool {
	return errors.Is(err, want) || want == io.EOF && err != nil // the other side has hung up
}

func TestSessionKeysDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 4 {
		client, server := sockets(t)
		c, _ := shake(client, server, Options{Protocol: testProto, Key: testKey}, Options{Protocol: testProto, Key: testKey})
		if c.err != nil || seen[string(c.s.Key)] {
			t.Fatalf("%v, or a key a second time", c.err)
		}
		seen[string(c.s.Key)] = true
	}
}

// Who sits between the two sides, and speaks TLS to each, cannot pass the proofs on: they
// are bound to the two ends of one TLS session. Without TLS it can.
func TestManInTheMiddle(t *testing.T) {
	for _, clientTLS := range []bool{true, false} {
		for _, serverTLS := range []bool{true, false} {
			t.Run(fmt.Sprintf("client %t, server %t", clientTLS, serverTLS), func(t *testing.T) {
				options := func(secure bool) Options {
					o := Options{Protocol: testProto, Key: testKey}
					if secure {
						o.TLS = ephemeral(t)
					}
					return o
				}
				client, mallory1 := sockets(t)
				mallory2, server := sockets(t)
				var wg sync.WaitGroup
				wg.Go(func() {
					a, b := mallory1, mallory2
					if clientTLS {
						a = tls.Server(a, ephemeral(t))
					}
					if serverTLS {
						b = tls.Client(b, ephemeral(t))
					}
					var copies sync.WaitGroup
					copies.Go(func() { _, _ = io.Copy(a, b); _ = mallory1.Close() })
					_, _ = io.Copy(b, a)
					_ = mallory2.Close()
					copies.Wait()
				})
				// Connection by connection: shake would wait for both.
				c, s := shake(client, server, options(clientTLS), options(serverTLS))
				client.Close()
				server.Close()
				wg.Wait()
				if clientTLS || serverTLS {
					if !errors.Is(s.err, ErrSecret) || !errors.Is(c.err, ErrSecret) {
						t.Errorf("client: %v, server: %v", c.err, s.err)
					}
				} else if c.err != nil || s.err != nil {
					t.Errorf("without TLS: %v, %v", c.err, s.err)
				}
			})
		}
	}
}

// The bytes are fixed: other versions of this program must compute the same.
func TestTranscript(t *testing.T) {
	client, server := sockets(t)
	var got []byte
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = server.Write(append([]byte("test\x00\x00\x03\x00"), bytes.Repeat([]byte{'s'}, 32)...))
		got = make([]byte, 40+32)
		_, _ = io.ReadFull(server, got)
		server.Close()
	})
	_, _, _ = Connect(client, Options{Protocol: testProto, Key: testKey}, soon())
	wg.Wait()
	h := sha256.New()
	h.Write([]byte("dynctl handshake 1"))
	h.Write(got[:40])
	h.Write([]byte("test\x00\x00\x03\x00" + strings.Repeat("s", 32)))
	m := hmac.New(sha256.New, bytes.Repeat([]byte{5}, 32))
	m.Write([]byte("client\x00"))
	m.Write(h.Sum(nil))
	if !bytes.HasPrefix(got, []byte("test\x00\x00\x03\x00")) || !bytes.Equal(got[40:], m.Sum(nil)) {
		t.Errorf("the client says %x", got)
	}
}

// Every bit of what a side says counts.
func TestChangedBytes(t *testing.T) {
	for _, dir := range []string{"client", "server"} {
		for at := range 40 + 33 {
			client, server := sockets(t)
			flipClient, flipServer := client, server
			if dir == "client" {
				flipServer = &flipping{Conn: server, at: at}
			} else {
				flipClient = &flipping{Conn: client, at: at}
			}
			c, s := shake(flipClient, flipServer, Options{Protocol: testProto, Key: testKey}, Options{Protocol: testProto, Key: testKey})
			if dir == "client" && at == 40+32 { // says no more than 72 bytes
				continue
			}
			if c.err == nil {
				t.Errorf("byte %d of the %s changed, and the client did not notice: %v", at, dir, s.err)
			}
		}
	}
}

// flipping changes one byte of what it reads.
type flipping struct {
	net.Conn
	at, read int
}

func (f *flipping) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if i := f.at - f.read; i >= 0 && i < n {
		p[i] ^= 1
	}
	f.read += n
	return n, err
}

func TestKeysAreNotPrinted(t *testing.T) {
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, testKey); text != "a key" {
			t.Errorf("%s prints %s", format, text)
		}
		if text := fmt.Sprintf(format, struct{ K Key }{testKey}); strings.Contains(text, "5") {
			t.Errorf("%s prints %s", format, text)
		}
	}
	if !NewKey(nil).IsZero() || !NewKey(make([]byte, 31)).IsZero() || RandomKey().IsZero() || (Key{}).String() != "no key" {
		t.Error("keys of other lengths are keys")
	}
}

// pretended is a connection from some host.
type pretended struct {
	net.Conn
	host   string
	closed bool
}

func (p *pretended) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(p.host), Port: 1}
}

func (p *pretended) Close() error { p.closed = true; return nil }

func TestLobby(t *testing.T) {
	var l Lobby
	enter := func(host string) (*pretended, *Guest) {
		c := &pretended{host: host}
		return c, l.Enter(c)
	}
	peer, peerIn := enter("10.0.0.1") // has been there longest, and is alone
	var flood []*pretended
	for range LobbySize + 17 {
		c, _ := enter("10.0.0.66")
		flood = append(flood, c)
	}
	if peer.closed {
		t.Error("a flood from one host has pushed a peer out")
	}
	for i, c := range flood {
		if want := i < 18; c.closed != want {
			t.Errorf("connection %d of the flood: closed = %t", i, c.closed)
		}
	}
	if peerIn.Leave() || len(l.inside) != LobbySize-1 {
		t.Errorf("%d inside after the peer has left", len(l.inside))
	}
	_, last := enter("10.0.0.66")
	_, _ = enter("10.0.0.66")
	if last.Leave() {
		t.Error("the newest has gone in place of the oldest")
	}
	l.Close()
	if late, _ := enter("10.0.0.1"); !late.closed || !flood[len(flood)-1].closed {
		t.Error("there are connections after Close")
	}
}

func TestRefusalsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var r Refusals
		for range 1000 {
			r.Warn(log, "refused")
		}
		if n := strings.Count(out.String(), "\n"); n != 5 {
			t.Errorf("%d lines for a flood", n)
		}
		time.Sleep(11 * time.Second)
		out.Reset()
		for range 1000 {
			r.Warn(log, "refused")
		}
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "more_since_the_last=995") {
			t.Errorf("after a while: %s", out.String())
		}
	})
}

// script is a connection whose other side says what it says.
type script struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)      { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)     { return s.out.Write(p) }
func (s *script) SetDeadline(time.Time) error     { return nil }
func (s *script) SetReadDeadline(time.Time) error { return nil }
func (s *script) Close() error                    { return nil }

// FuzzAccept has a server listen to anything: it lets nobody in, and says no more than a
// stranger may know.
func FuzzAccept(f *testing.F) {
	f.Add([]byte("test\x00\x00\x03\x00"+strings.Repeat("n", 64)), false)
	f.Add([]byte("test\x00\x00\x02\x00"), false)
	f.Add([]byte{0x16, 3, 1, 0, 1, 1}, true)
	secure := ephemeral(f)
	f.Fuzz(func(t *testing.T, says []byte, withTLS bool) {
		o := Options{Protocol: testProto, Key: testKey}
		if withTLS {
			o.TLS = secure
		}
		s := &script{in: bytes.NewReader(says)}
		if _, _, err := Accept(s, o, soon()); err == nil {
			t.Fatalf("%q is let in", says)
		}
		if n := s.out.Len(); n > 40+33 && !withTLS {
			t.Errorf("%d bytes for a stranger", n)
		}
	})
}

// FuzzConnect has a client listen to anything: it believes nobody, and says nothing
// behind its proof.
func FuzzConnect(f *testing.F) {
	f.Add([]byte("test\x00\x00\x03\x00" + strings.Repeat("n", 32) + "\x00" + strings.Repeat("p", 32)))
	f.Add([]byte("test\x00\x00\x03\x02"))
	f.Fuzz(func(t *testing.T, says []byte) {
		s := &script{in: bytes.NewReader(says)}
		if _, _, err := Connect(s, Options{Protocol: testProto, Key: testKey}, soon()); err == nil {
			t.Fatalf("%q is believed", says)
		}
		if n := s.out.Len(); n > 40+32 {
			t.Errorf("%d bytes for a stranger", n)
		}
	})
}

func BenchmarkHandshake(b *testing.B) {
	for _, secure := range []bool{false, true} {
		b.Run(fmt.Sprintf("tls=%t", secure), func(b *testing.B) {
			o := Options{Protocol: testProto, Key: testKey}
			if secure {
				o.TLS = ephemeral(b)
			}
			for b.Loop() {
				b.StopTimer()
				client, server := sockets(b)
				b.StartTimer()
				if c, s := shake(client, server, o, o); c.err != nil || s.err != nil {
					b.Fatal(c.err, s.err)
				}
				b.StopTimer()
				client.Close()
				server.Close()
				b.StartTimer()
			}
		})
	}
}
