package tcp

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

// fake is a target that lets anybody in, answers with fixed bytes and closes.
type fake struct {
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	bytes []byte
}

func newFake(t testing.TB) *fake {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{ln: ln}
	f.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f.serve(nc)
		}
	})
	t.Cleanup(f.close)
	return f
}

func (f *fake) serve(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, _, err := handshake.Accept(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(5*time.Second)); err != nil {
		return
	}
	br := bufio.NewReader(nc)
	if _, _, err := readGreeting(br); err != nil {
		return
	}
	w := welcome{silence: 3 * time.Second, open: 4, descs: 100, openDescs: 100, notifySize: 100, windowCount: 4, windowBytes: 400}
	_, _ = nc.Write(frame{header{kind: kindWelcome}, w.encode()}.append(nil))
	if _, _, err := readGreeting(br); err != nil { // the first request
		return
	}
	f.mu.Lock()
	_, _ = nc.Write(f.bytes)
	f.mu.Unlock()
	_ = nc.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, br)
}

func (f *fake) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", f.ln.Addr().String())
}

// answer sets what the next connections get.
func (f *fake) answer(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes = b
}

func (f *fake) close() {
	_ = f.ln.Close()
	f.wg.Wait()
}
