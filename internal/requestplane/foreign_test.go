package requestplane_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// What the other side of a connection may be: another program, another version,
// or one of ours gone wrong. These tests speak the protocol by hand.

var spoken = handshake.Protocol{Name: "dynrp\x00", Version: 2}

// hello is the first message of a client.
const hello = "dynrp\x00\x02\x00"

// prove is a client's side of the handshake, welcome a server's.
func prove(conn net.Conn) error {
	_, _, err := handshake.Connect(conn, handshake.Options{Protocol: spoken, Key: clusterKey}, time.Now().Add(patience.Soon))
	return err
}

func welcome(conn net.Conn) bool {
	_, _, err := handshake.Accept(conn, handshake.Options{Protocol: spoken, Key: clusterKey}, time.Now().Add(patience.Soon))
	return err == nil
}

func quietMux() *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	return cfg
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience.Soon))
	return conn
}

func TestTCPForeignClients(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{HandshakeTimeout: 200 * time.Millisecond})
	handle(t, s, "1/echo", echo)
	tests := []struct{ name, say, want string }{
		{"http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01", ""},
		{"another version", "dynrp\x00\x07\x00", "dynrp\x00\x02\x01"},
		{"the version without secrets", "dynrp\x00\x01\x00", "dynrp\x00\x02\x01"},
		{"nothing", "", ""},
		{"half a greeting", "dyn", ""},
		{"garbage after the greeting", hello + strings.Repeat("\xff", 100), hello},
		{"requests in the place of a proof", hello + strings.Repeat("n", 32) + "\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x10" + frame(1, "x") + strings.Repeat("p", 32), hello},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			conn := dial(t, s.Addr())
			if _, err := io.WriteString(conn, test.say); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn) // ends because the server hangs up
			if errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(string(got), test.want) || test.want == "" && len(got) > 0 {
				t.Errorf("read %q, %v, want %q", got, err, test.want)
			}
		})
	}
	if err := ask(t.Context(), newClient(t, requestplane.ClientConfig{}), s.Addr()+"/1/echo", "fine"); err != nil {
		t.Error(err)
	}
}

func TestTCPForeignServers(t *testing.T) {
	checkLeaks(t)
	tests := []struct{ name, say, want string }{
		{"hangs up", "", ""},
		{"http", "HTTP/1.1 400 Bad Request\r\n\r\n", "the peer uses another protocol"},
		{"another version", "dynrp\x00\x07\x01", "the peer uses another protocol version: 7"},
		{"the version without secrets", "dynrp\x00\x01\x01", "the peer uses another protocol version: 1"},
		{"the version without secrets, unasked", "dynrp\x00\x01\x00", "the peer uses another protocol version: 1"},
		{"half a greeting", "dynrp", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := serveOnce(t, func(conn net.Conn) {
				io.ReadFull(conn, make([]byte, 40))
				io.WriteString(conn, test.say)
			})
			c := newClient(t, requestplane.ClientConfig{})
			_, err := c.Call(t.Context(), addr+"/1/echo", "r", nil, nil)
			if !errors.Is(err, requestplane.ErrCannotConnect) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Call = %v, want ErrCannotConnect with %q", err, test.want)
			}
		})
	}
}

// serveOnce runs f with each connection, and closes it then.
func serveOnce(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			f(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

func frame(typ byte, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)+1))
	return string(b) + string(typ) + payload
}

// mux greets a server and returns the session.
func mux(t *testing.T, addr string) *yamux.Session {
	t.Helper()
	conn := dial(t, addr)
	if err := prove(conn); err != nil {
		t.Fatal(err)
	}
	sess, err := yamux.Client(conn, quietMux())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sess.Close() })
	return sess
}

// Requests that make no sense cost one stream, never the connection or more
// memory than was sent.
func TestTCPBadRequests(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{HandshakeTimeout: 300 * time.Millisecond, Limits: requestplane.Limits{MaxMessage: 1 << 20}})
	handle(t, s, "1/echo", echo)
	sess := mux(t, s.Addr())
	tests := []struct {
		name, send string
		closeWrite bool
		answered   bool // with an error frame; else the stream is just closed
	}{
		{"nothing", "", false, false},
		{"closed at once", "", true, false},
		{"half a length", "\x00\x00", true, false},
		{"half a frame", frame(1, "xxxxxxxx")[:8], true, false},
		{"wrong type", frame(2, "x"), false, true},
		{"unknown type", frame(99, ""), false, true},
		{"empty frame", "\x00\x00\x00\x00", false, true},
		{"empty request", frame(1, ""), false, true},
		{"header longer than the request", frame(1, "\x00\x00\x00\xffx"), false, true},
		{"header of 4 GiB", frame(1, "\xff\xff\xff\xffx"), false, true},
		{"header is not msgpack", frame(1, "\x00\x00\x00\x01\xc1"), false, true},
		{"header is not a map", frame(1, "\x00\x00\x00\x01\x01"), false, true},
		{"frame over the limit", "\x00\x20\x00\x00\x01" + strings.Repeat("x", 2<<20), false, true},
		{"announces 4 GiB and sends nothing", "\xff\xff\xff\xff\x01", false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			st, err := sess.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			st.SetDeadline(time.Now().Add(patience.Soon))
			if _, err := io.WriteString(st, test.send); err != nil {
				t.Fatal(err)
			}
			if test.closeWrite {
				st.Close()
			}
			got, err := io.ReadAll(st)
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if answered := len(got) > 5 && got[4] == 4; answered != test.answered {
				t.Errorf("answer = %q", got)
			}
		})
	}
	if err := ask(t.Context(), newClient(t, requestplane.ClientConfig{}), s.Addr()+"/1/echo", "fine"); err != nil {
		t.Error(err)
	}
	if sess.IsClosed() {
		t.Error("a bad request ended the connection")
	}
}

// Bytes after the request are a broken caller; its handler is stopped.
func TestTCPTrailingBytes(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{})
	h := newHold()
	handle(t, s, "1/hold", h.handle)
	st, err := mux(t, s.Addr()).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	header := "\x81\xa4path\xa61/hold"
	io.WriteString(st, frame(1, "\x00\x00\x00"+string(rune(len(header)))+header))
	if _, err := io.ReadFull(st, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(st, "more")
	if err := h.cause(t); !errors.Is(err, requestplane.ErrStopped) {
		t.Errorf("handler's cause = %v, want ErrStopped", err)
	}
}

// An answer that breaks off or makes no sense is never taken for a complete one.
func TestTCPBadAnswers(t *testing.T) {
	checkLeaks(t)
	item := frame(2, "\xa1x") // a string
	tests := []struct {
		name, say string
		items     int
		incomplete,
		remote bool
	}{
		{"closes without a word", "", 0, true, false},
		{"closes after items", item + item, 2, true, false},
		{"closes within a length", item + "\x00\x00", 1, true, false},
		{"closes within an item", item + item[:5], 1, true, false},
		{"announces 4 GiB", item + "\xff\xff\xff\xff\x02", 1, true, false},
		{"empty frame", item + "\x00\x00\x00\x00", 1, true, false},
		{"unknown type", item + frame(77, "x"), 1, true, false},
		{"a request", item + frame(1, "x"), 1, true, false},
		{"unreadable error", item + frame(4, "\xc1"), 1, false, true},
		{"complete", item + frame(3, ""), 1, false, false},
		{"goes on after the end", item + frame(3, "") + item, 1, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := serveOnce(t, func(conn net.Conn) {
				if !welcome(conn) {
					return
				}
				sess, err := yamux.Server(conn, quietMux())
				if err != nil {
					return
				}
				defer sess.Close()
				st, err := sess.Accept()
				if err != nil {
					return
				}
				io.ReadFull(st, make([]byte, 4)) // the request, or enough of it
				io.WriteString(st, test.say)
				st.Close()
				io.Copy(io.Discard, st)
			})
			c := newClient(t, requestplane.ClientConfig{})
			st, err := c.Call(t.Context(), addr+"/1/echo", "r", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			for range test.items {
				var s string
				if err := st.Recv(t.Context(), &s); err != nil || s != "x" {
					t.Fatalf("Recv = %q, %v", s, err)
				}
			}
			err = st.Recv(t.Context(), nil)
			var re *requestplane.RemoteError
			if errors.Is(err, requestplane.ErrIncomplete) != test.incomplete || errors.As(err, &re) != test.remote {
				t.Errorf("end = %v", err)
			}
			if !test.incomplete && !test.remote && err != io.EOF {
				t.Errorf("end = %v, want io.EOF", err)
			}
			// Callers ask with errors.Is, too.
			if complete := !test.incomplete && !test.remote; errors.Is(err, io.EOF) != complete {
				t.Errorf("errors.Is(%v, io.EOF) = %t", err, !complete)
			}
		})
	}
}

// A length that was announced must not reserve memory.
func TestTCPAnnouncedLength(t *testing.T) {
	s := listen(t, requestplane.ServerConfig{})
	handle(t, s, "1/echo", echo)
	sess := mux(t, s.Addr())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 50 {
		st, err := sess.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		st.Write([]byte{0x01, 0xff, 0xff, 0xff, 1}) // almost 32 MiB
	}
	if _, err := sess.Ping(); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "streams are read", func() bool { return sess.NumStreams() == 50 })
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
		t.Errorf("50 announcements cost %d bytes", grown)
	}
}

// The greeting is fixed: another version must find the same bytes.
func TestTCPGreeting(t *testing.T) {
	s := listen(t, requestplane.ServerConfig{})
	conn := dial(t, s.Addr())
	io.WriteString(conn, hello+strings.Repeat("n", 32))
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, []byte(hello)) {
		t.Errorf("greeting = %q, %v", got, err)
	}
}
