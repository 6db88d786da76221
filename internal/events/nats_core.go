package events

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// CoreMessage is a message of NATS without any meaning for the event plane.
type CoreMessage struct {
	Subject string
	Reply   string // where an answer goes, if one is wanted
	Data    []byte // owned by the receiver
	// Nobody says that this is the server's answer to a message with Reply, on whose subject
	// nobody listens.
	Nobody bool
}

// Send hands a message to the connection at once, past the outbox. The server reports at
// reply, if that is not empty, when nobody listens on the subject. It fails with
// ErrUnavailable while there is no connection: nothing was sent then. A nil error promises no
// delivery. Messages of one caller arrive in their order, if they do. Send may wait for
// the socket, two seconds at most.
func (n *NATS) Send(subject, reply string, data []byte) error {
	var err error
	if reply == "" {
		err = n.nc.Publish(subject, data)
	} else {
		err = n.nc.PublishRequest(subject, reply, data)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrConnectionClosed):
		err = ErrClosed
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		err = ErrUnavailable
	}
	return fmt.Errorf("send on %s: %w", subject, err)
}

// Receive calls h from one goroutine for each message on a subject, which may have
// wildcards, until stop is called or the bus is closed. Of the receivers in one group, if
// that is not empty, one gets each message. After outages it goes on by itself; what was sent
// meanwhile is lost.
func (n *NATS) Receive(subject, group string, h func(CoreMessage)) (stop func(), err error) {
	if err := checkPattern(subject); err != nil {
		return nil, err
	}
	pass := func(m *nats.Msg) {
		nobody := len(m.Data) == 0 && m.Header.Get("Status") == "503"
		h(CoreMessage{Subject: m.Subject, Reply: m.Reply, Data: m.Data, Nobody: nobody})
	}
	var sub *nats.Subscription
	if group == "" {
		sub, err = n.nc.Subscribe(subject, pass)
	} else {
		sub, err = n.nc.QueueSubscribe(subject, group, pass)
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		err = ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("receive on %s: %w", subject, err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			n.log.Debug("unsubscribe failed", "subject", subject, "err", err)
		}
	}, nil
}

// Online returns a channel that is closed while, or as soon as, there is a connection.
func (n *NATS) Online() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.online
}

// Offline returns a channel that is closed when the current connection breaks, or at once if
// there is none.
func (n *NATS) Offline() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.offline
}

// MaxPayload is the largest message that the server takes, in bytes, or 0 before the first
// connection.
func (n *NATS) MaxPayload() int64 { return n.maxPayload.Load() }
