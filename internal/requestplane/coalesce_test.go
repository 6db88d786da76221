package requestplane

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// pipe returns a coalescer and the other end of its connection.
func pipe(t *testing.T) (*coalescer, net.Conn) {
	a, b := net.Pipe()
	c := newCoalescer(a, time.Minute)
	t.Cleanup(func() {
		c.Close()
		b.Close()
	})
	return c, b
}

// While one write is under way, others gather and leave together.
func TestCoalescerGathers(t *testing.T) {
	c, peer := pipe(t)
	const n = 1000
	for range n {
		if _, err := c.Write([]byte("frame")); err != nil {
			t.Fatal(err)
		}
	}
	reads, got := 0, 0
	for buf := make([]byte, 64<<10); got < n*5; reads++ {
		k, err := peer.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += k
	}
	if reads > 3 { // the first frames, and then the rest
		t.Errorf("%d writes to the socket for %d frames", reads, n)
	}
}

func TestCoalescerKeepsOrder(t *testing.T) {
	c, peer := pipe(t)
	const n = 20_000
	go func() {
		for i := range n {
			c.Write([]byte{byte(i), byte(i >> 8)})
		}
	}()
	got := make([]byte, 2*n)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got[2*i] != byte(i) || got[2*i+1] != byte(i>>8) {
			t.Fatalf("frame %d = %v", i, got[2*i:2*i+2])
		}
	}
}

// Writers wait when nobody reads, and do not wait for a closed connection.
func TestCoalescerBounded(t *testing.T) {
	c, _ := pipe(t)
	var wg sync.WaitGroup
	ends := make(chan error, 4)
	for range cap(ends) {
		wg.Go(func() {
			chunk := make([]byte, 10_000)
			for {
				if _, err := c.Write(chunk); err != nil {
					ends <- err
					return
				}
			}
		})
	}
	full := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.buf) >= maxUnsent
	}
	for deadline := time.Now().Add(time.Minute); !full(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never full")
		}
	}
	c.mu.Lock()
	if len(c.buf) > maxUnsent+10_000 {
		t.Errorf("%d bytes wait", len(c.buf))
	}
	c.mu.Unlock()
	c.Close()
	wg.Wait()
	for range cap(ends) {
		if err := <-ends; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write = %v, want net.ErrClosed", err)
		}
	}
}

func TestCoalescerWriteTimeout(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c := newCoalescer(a, 20*time.Millisecond)
	defer c.Close()
	c.Write([]byte("nobody reads this"))
	<-c.done
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("Write succeeded on a dead connection")
	}
}

func TestCoalescerHangUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	got := make(chan []byte, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			got <- nil
			return
		}
		defer conn.Close()
		b, _ := io.ReadAll(conn)
		got <- b
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newCoalescer(conn, time.Minute)
	go io.Copy(io.Discard, c)
	want := bytes.Repeat([]byte("last words "), 10_000)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	c.hangUp(10 * time.Second)
	c.Close()
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("peer got %d bytes, want %d", len(b), len(want))
	}
}

func TestCoalescerHangUpLimit(t *testing.T) {
	c, _ := pipe(t)
	c.Write([]byte("nobody reads this"))
	c.hangUp(20 * time.Millisecond) // must return
	<-c.done
}
