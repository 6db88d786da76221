package requestplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	typeFrames = "application/vnd.dynctl.frames" // between nodes: frames as on the tcp plane
	typeJSON   = "application/json"

	// streamWindow is the number of bytes that the server may be ahead of a caller that
	// does not read, as on the tcp plane.
	streamWindow = 256 << 10
	// connWindow is the same for all streams of a connection, so large that slow readers
	// do not slow down others: ten thousand of them can fill their windows.
	connWindow = 1 << 30
)

// httpLink is a connection to a server that speaks HTTP/2.
type httpLink struct {
	wire *httpWire
	conn *http.ClientConn
	base *url.URL

	calls atomic.Uint64 // number of the last request
}

func newHTTPLink(ctx context.Context, conn net.Conn, server string, live Liveness) (*httpLink, error) {
	base, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	wire := newHTTPWire(conn)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true) // TLS, if any, is below it
	tr := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return wire, nil },
		Protocols:          &protocols,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			SendPingTimeout:               live.KeepAlive,
			PingTimeout:                   live.PeerTimeout,
			WriteByteTimeout:              live.PeerTimeout,
		},
	}
	hc, err := tr.NewClientConn(ctx, "http", base.Host)
	if err != nil {
		return nil, fmt.Errorf("http/2: %w", err)
	}
	return &httpLink{wire: wire, conn: hc, base: base}, nil
}

// IsClosed reports whether no request can be sent any more.
func (l *httpLink) IsClosed() bool { return l.wire.reason() != nil || l.conn.Err() != nil }

// CloseChan is closed when the connection has ended.
func (l *httpLink) CloseChan() <-chan struct{} { return l.wire.gone }

// Close ends the connection. The peer sees the end of the connection before that of its
// streams.
func (l *httpLink) Close() error {
	return errors.Join(l.wire.end(errors.New("connection closed")), l.conn.Close())
}

func (l *httpLink) reason() error {
	if err := l.wire.reason(); err != nil {
		return err
	}
	return l.conn.Err()
}

func (l *httpLink) start(ctx context.Context, conn *clientConn, h requestHeader, frame []byte) (Stream, error) {
	s := newHTTPStream(ctx, conn)
	s.link, s.number = l, l.calls.Add(1)
	req := l.request(h, frame)
	req.Header.Set(headerCall, strconv.FormatUint(s.number, 10))
	var begun atomic.Bool // some of it may have been sent
	sent := make(chan struct{})
	req = req.WithContext(httptrace.WithClientTrace(s.call, &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { begun.Store(true) },
		WroteHeaders:     func() { close(sent) },
	}))
	if !conn.spawn(func() { s.run(l, req) }) {
		return nil, errNotOpened
	}
	select {
	case <-sent:
	case <-s.ready:
		if s.failed != nil && !begun.Load() {
			s.drop()
			return nil, fmt.Errorf("%w: %w", errNotOpened, s.failed)
		}
	case <-ctx.Done():
		s.drop()
		return nil, context.Cause(ctx)
	}
	return s.handOver(), nil
}

func (l *httpLink) request(h requestHeader, frame []byte) *http.Request {
	u := *l.base
	u.Path = cluster.RPCRoot + h.Path
	req := &http.Request{
		Method: http.MethodPost, URL: &u, Host: u.Host,
		Header: http.Header{"Content-Type": {typeFrames}},
		Body:   io.NopCloser(bytes.NewReader(frame)), ContentLength: int64(len(frame)),
	}
	if plainText(h.ID) {
		req.Header.Set(HeaderID, h.ID)
	}
	for _, name := range TraceHeaders {
		if v, ok := h.Headers[name]; ok && plainText(v) {
			req.Header.Set(name, v)
		}
	}
	return req
}

// plainText reports whether s can be the value of an HTTP header.
func plainText(s string) bool {
	return s != "" && len(s) <= 4096 && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// answerReader returns the body of an answer, or the error that it stands for. A refusal in
// frames is an answer as any other.
func answerReader(resp *http.Response) (io.ReadCloser, error) {
	if resp.Header.Get("Content-Type") == typeFrames {
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	return nil, fmt.Errorf("%w: http status %s in place of an answer", errFrame, resp.Status)
}

// drainTime limits the wait for the end of an HTTP answer after its final frame.
const drainTime = time.Second
