package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/nixl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("0123456789abcdef")

// host is an agent that remembers what was asked of it.
type host struct {
	blob   []byte
	loaded [][]byte
	gone   []nixl.Identity
}

func (h *host) Self() nixl.Identity { return nixl.Identity{Name: "server", Incarnation: "1"} }
func (h *host) Metadata() []byte    { return h.blob }

func (h *host) LoadRemote(blob []byte) (string, error) {
	h.loaded = append(h.loaded, blob)
	return "", nil
}

func (h *host) InvalidateFrom(from nixl.Identity) error {
	h.gone = append(h.gone, from)
	return fmt.Errorf("who? %w", nixl.ErrNotFound)
}

// blobOf returns the metadata of an agent of that name.
func blobOf(t testing.TB, name, incarnation string) []byte {
	a, err := nixl.NewAgent(nixl.Config{Name: name, Incarnation: incarnation})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	return a.Metadata()
}

func TestConversation(t *testing.T) {
	client, server := socketPair(t)
	h := &host{blob: bytes.Repeat([]byte("blob"), 1000)}
	served := make(chan error, 1)
	go func() { served <- Serve(server, secret, h, nil) }()
	c, err := Dial(client, secret, nixl.Identity{Name: "client", Incarnation: "7"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Peer().Name != "server" {
		t.Errorf("peer = %+v", c.Peer())
	}
	if b, err := c.Send(); err != nil || !bytes.Equal(b, h.blob) {
		t.Errorf("Send(): %d bytes, %v", len(b), err)
	}
	mine := blobOf(t, "client", "7")
	if err := c.Load(mine); err != nil {
		t.Errorf("Load(): %v", err)
	}
	if err := c.Load(blobOf(t, "client", "8")); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("blob of another incarnation: %v", err)
	}
	if err := c.Load(make([]byte, nixl.MaxMetadata+1)); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("blob that is too long: %v", err)
	}
	if err := c.Invalidate(); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("Invalidate(): %v", err)
	}
	_ = client.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve(): %v", err)
	}
	if len(h.loaded) != 1 || !bytes.Equal(h.loaded[0], mine) || len(h.gone) != 1 || h.gone[0].Incarnation != "7" {
		t.Errorf("host = %+v", h)
	}
}

// A middleman changes one byte of the conversation: no such message is taken for good.
func TestChangedBytes(t *testing.T) {
	var asked []byte // what the client says, with its greeting and proof
	record := func(flip int) (*host, error) {
		client, server := socketPair(t)
		h := &host{blob: []byte("blob")}
		served := make(chan error, 1)
		go func() {
			err := Serve(&flipping{Conn: server, at: flip}, secret, h, nil)
			_ = server.Close()
			served <- err
		}()
		rec := &recording{Conn: client}
		c, err := Dial(rec, secret, nixl.Identity{Name: "client", Incarnation: "7"})
		if err == nil {
			_ = c.Load(blobOf(t, "client", "7"))
			_ = c.Invalidate()
		}
		_ = client.Close()
		err = <-served
		asked = rec.said
		return h, err
	}
	if h, err := record(-1); err != nil || len(h.loaded) != 1 || len(h.gone) != 1 {
		t.Fatalf("undisturbed: %v, %+v", err, h)
	}
	for at := 0; at < len(asked); at += 3 {
		h, err := record(at)
		if err == nil {
			t.Errorf("byte %d of %d changed, and nobody noticed", at, len(asked))
		}
		if len(h.gone) != 0 || len(h.loaded) > 1 {
			t.Errorf("byte %d changed: %+v", at, h)
		}
	}
}

func socketPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{client, server} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { _ = c.Close() })
	}
	return client, server
}

type recording struct {
	net.Conn
	said []byte
}

func (r *recording) Write(p []byte) (int, error) {
	r.said = append(r.said, p...)
	return r.Conn.Write(p)
}

// flipping changes the byte at an offset of what it reads.
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

// What a server said is of no use to who pretends to be one: proofs and messages of a
// side are not accepted from the other.
func TestReflection(t *testing.T) {
	client, server := socketPair(t)
	go func() { _, _ = io.Copy(server, server) }() // sends everything back; ends with the connection
	if _, err := Dial(client, secret, nixl.Identity{Name: "client", Incarnation: "7"}); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("a mirror was believed: %v", err)
	}
	_ = server.Close()
	_ = client.Close()
}

// script is a connection on which the other side says fixed bytes.
type script struct {
	io.Reader
	io.Writer
}

// FuzzMessages reads messages that nobody with the key has made, and results.
func FuzzMessages(f *testing.F) {
	var out bytes.Buffer
	_ = (&channel{rw: script{nil, &out}, key: secret, own: sideClient}).send(kindInvl, nil)
	f.Add(out.Bytes())
	f.Add(encodeHello(nixl.Identity{Name: "a", Incarnation: "1"}))
	f.Add([]byte{0xff, 0xff, 0x3f, 0, byte(kindLoad)})
	f.Fuzz(func(t *testing.T, b []byte) {
		ch := &channel{rw: script{bytes.NewReader(b), io.Discard}, key: []byte("some other key"), other: sideClient}
		if k, _, err := ch.receive(); err == nil {
			t.Errorf("message of kind %d is believed", k)
		}
		if from, err := parseHello(b); err == nil && !bytes.Equal(encodeHello(from), b) {
			t.Errorf("hello %+v is %x", from, b)
		}
		if err := decodeResult(b); err == nil && b[0] != 0 || errors.Is(err, nixl.InProgress) {
			t.Errorf("result %x is %v", b, err)
		}
	})
}
