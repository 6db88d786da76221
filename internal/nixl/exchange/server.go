package exchange

import (
	"errors"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Serve answers one connection until the other side closes it or breaks the protocol.
// The connection's deadline is the caller's, and the key that of the handshake which
// began the connection. before is called ahead of each request, to
// move it; it may be nil.
func Serve(conn io.ReadWriter, key []byte, h nixl.MetadataHost, before func() error) error {
	ch := &channel{rw: conn, key: key, own: sideServer, other: sideClient}
	from, err := ch.hello()
	if err == nil {
		err = ch.send(kindHello, encodeHello(h.Self()))
	}
	if err != nil {
		return fmt.Errorf("serve metadata: %w", err)
	}
	for range maxRequests {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		k, body, err := ch.receive()
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("serve metadata to %q: %w", from.Name, err)
		}
		if err := answer(ch, h, from, k, body); err != nil {
			return fmt.Errorf("serve metadata to %q: %w", from.Name, err)
		}
	}
	return fmt.Errorf("serve metadata to %q: more than %d requests: %w", from.Name, maxRequests, errProtocol)
}

func answer(ch *channel, h nixl.MetadataHost, from nixl.Identity, k kind, body []byte) error {
	switch k {
	case kindSend:
		if blob := h.Metadata(); len(blob) <= nixl.MaxMetadata {
			return ch.send(kindBlob, blob)
		}
		return ch.send(kindResult, encodeResult(fmt.Errorf("metadata are longer than %d bytes: %w", nixl.MaxMetadata, nixl.ErrBackend)))
	case kindLoad:
		return ch.send(kindResult, encodeResult(load(h, from, body)))
	case kindInvl:
		return ch.send(kindResult, encodeResult(h.InvalidateFrom(from)))
	}
	return fmt.Errorf("request of kind %d: %w", k, errProtocol)
}

// load accepts a blob of the sender itself only.
func load(h nixl.MetadataHost, from nixl.Identity, blob []byte) error {
	id, err := nixl.MetadataIdentity(blob)
	switch {
	case err != nil:
		return err
	case id.Name != from.Name || id.Incarnation != from.Incarnation:
		return fmt.Errorf("metadata of agent %q from agent %q: %w", id.Name, from.Name, nixl.ErrMismatch)
	}
	_, err = h.LoadRemote(blob)
	return err
}
