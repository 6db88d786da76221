package tcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/exchange"
)

var _ nixl.MetadataExchanger = (*transport)(nil)

// kindExchange, in the place of a hello and without a body, begins a conversation of
// package exchange.
const kindExchange kind = 0x40

var (
	errExchange  = errors.New("connection for metadata") // not for memory
	errExchanged = errors.New("connection for metadata has ended")
)

// buffered is a connection some bytes of which have been read ahead.
type buffered struct {
	net.Conn
	br *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.br.Read(p) }

// serveExchange answers a connection that wants metadata, and returns errExchanged when
// all is well. It counts as one that has not said hello: Close ends it.
func (t *transport) serveExchange(nc net.Conn, br *bufio.Reader, proved handshake.Session) error {
	h, ok := t.host.(nixl.MetadataHost)
	if !ok || !t.opts.Exchange {
		return fmt.Errorf("metadata are not exchanged here: %w", nixl.ErrNotSupported)
	}
	err := exchange.Serve(buffered{nc, br}, proved.Key, h, func() error {
		return nc.SetDeadline(time.Now().Add(t.opts.SilenceTimeout))
	})
	if err == nil {
		err = errExchanged
	}
	return err
}

func (t *transport) ExchangeAddr() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.opts.Exchange:
		return "", fmt.Errorf("transport %s was not asked for it: %w", Name, nixl.ErrNotSupported)
	case t.ln == nil || t.closed:
		return "", fmt.Errorf("transport %s does not listen: %w", Name, nixl.ErrNotAllowed)
	}
	return advertised(t.ln.Addr().String(), t.opts.AdvertiseHost)
}

func (t *transport) Send(ctx context.Context, addr string, blob []byte) error {
	return t.converse(ctx, addr, func(c *exchange.Client) error { return c.Load(blob) })
}

func (t *transport) Fetch(ctx context.Context, addr string) (blob []byte, err error) {
	err = t.converse(ctx, addr, func(c *exchange.Client) (err error) {
		blob, err = c.Send()
		return err
	})
	return blob, err
}

func (t *transport) SendInvalidation(ctx context.Context, addr string) error {
	return t.converse(ctx, addr, func(c *exchange.Client) error { return c.Invalidate() })
}

// converse connects, and ends with ctx, or when the other side is silent.
func (t *transport) converse(ctx context.Context, addr string, ask func(*exchange.Client) error) error {
	raw, err := t.opts.dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("%w: %w", nixl.ErrRemoteDisconnect, err)
	}
	defer func() { _ = raw.Close() }()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	c, err := t.begin(raw, addr)
	if err == nil {
		err = ask(c)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// begin proves itself and asks for a conversation.
func (t *transport) begin(raw net.Conn, addr string) (*exchange.Client, error) {
	nc, proved, err := t.prove(raw, addr)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(t.opts.ConnectTimeout + t.opts.SilenceTimeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(frame{header: header{kind: kindExchange}}.append(nil)); err != nil {
		return nil, fmt.Errorf("%w: %w", nixl.ErrRemoteDisconnect, err)
	}
	return exchange.Dial(nc, proved.Key, t.host.Self())
}
