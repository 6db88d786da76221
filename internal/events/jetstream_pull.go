package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pullExpiry    = 5 * time.Second // of one request for a message
	pullHeartbeat = time.Second     // signs of life of a waiting request
	drainTimeout  = time.Second     // for returning the last messages at the end
)

// errSilent is returned when the server sends no heartbeat for a request.
var errSilent = errors.New("no heartbeat from the consumer")

// puller asks a durable consumer for one message at a time. After a reconnect, the
// library's own iterators may have two requests under way with room for one answer.
// puller returns a surplus message at once, so that none has to wait for its
// acknowledgement timeout.
type puller struct {
	bus     *NATS
	request string // subject of requests
	inbox   string
	sub     *nats.Subscription
	closed  chan struct{} // closed when the subscription is drained

	mu      sync.Mutex
	waiting bool           // next is waiting for a message
	answer  chan pullReply // capacity 1; filled at most once per wait for a message
}

// pullReply is one message, or the status of a request.
type pullReply struct {
	msg *nats.Msg
	err error // with a nil msg, nil means a heartbeat
}

// errRequestOver is returned when a request ended without a message, as it does after
// pullExpiry.
var errRequestOver = errors.New("request over")

func newPuller(bus *NATS, stream, durable string) (*puller, error) {
	p := &puller{
		bus:     bus,
		request: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + durable,
		inbox:   bus.nc.NewInbox(),
		closed:  make(chan struct{}),
		answer:  make(chan pullReply, 1),
	}
	var err error
	p.sub, err = bus.nc.Subscribe(p.inbox, p.receive)
	if err != nil {
		return nil, err
	}
	p.sub.SetClosedHandler(func(string) { close(p.closed) })
	return p, nil
}

// receive runs on the subscription's goroutine.
func (p *puller) receive(m *nats.Msg) {
	r := classify(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.waiting && r.msg != nil:
		p.waiting = false
		select { // an older status that next has not read is obsolete
		case <-p.answer:
		default:
		}
		p.answer <- r
	case p.waiting:
		select {
		case p.answer <- r:
		default: // a status is waiting already
		}
	default:
		p.giveBack(r)
	}
}

// classify tells messages from the server's status replies.
func classify(m *nats.Msg) pullReply {
	status := m.Header.Get("Status")
	if len(m.Data) > 0 || status == "" {
		return pullReply{msg: m}
	}
	text := m.Header.Get("Description")
	switch {
	case status == "100":
		return pullReply{}
	case status == "503":
		return pullReply{err: nats.ErrNoResponders}
	case status == "409" && strings.EqualFold(text, "Consumer Deleted"):
		return pullReply{err: jetstream.ErrConsumerDeleted}
	case status == "404", status == "408":
		return pullReply{err: errRequestOver}
	}
	return pullReply{err: fmt.Errorf("consumer says %s %s", status, text)}
}

// next waits for a message. Once ctx has ended it requests none: one that was sent all the
// same would be given back, and count as in work until somebody else gets it.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	p.waiting = true
	select {
	case <-p.answer: // the status of an earlier request
	default:
	}
	p.mu.Unlock()
	defer p.stopWaiting()

	lost := p.bus.Offline()
	silence := time.NewTimer(2 * pullHeartbeat)
	defer silence.Stop()
	if err := p.ask(); err != nil {
		return nil, err
	}
	for {
		select {
		case r := <-p.answer:
			switch {
			case r.msg != nil:
				return r.msg, nil
			case errors.Is(r.err, errRequestOver):
				if err := p.ask(); err != nil {
					return nil, err
				}
			case r.err != nil:
				return nil, r.err
			}
			silence.Reset(2 * pullHeartbeat)
		case <-silence.C:
			return nil, errSilent
		case <-lost:
			return nil, nats.ErrDisconnected
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// stopWaiting ends the wait of next and returns a message that arrived too late.
func (p *puller) stopWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waiting {
		select {
		case r := <-p.answer: // next returned without it
			p.giveBack(r)
		default:
		}
	}
	p.waiting = false
}

func (p *puller) giveBack(r pullReply) {
	if r.msg == nil {
		return
	}
	if err := r.msg.Respond([]byte("-NAK")); err != nil {
		p.bus.log.Debug("message not given back", "err", err)
	}
}

func (p *puller) ask() error {
	body, err := json.Marshal(struct {
		Expires   time.Duration `json:"expires"`
		Batch     int           `json:"batch"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullExpiry, 1, pullHeartbeat})
	if err != nil {
		return err
	}
	return p.bus.nc.PublishRequest(p.request, p.inbox, body)
}

// close ends the subscription. It waits until the messages that the server had sent are
// returned to the queue.
func (p *puller) close() {
	if p.sub.Drain() != nil {
		_ = p.sub.Unsubscribe() // fails when the connection is closed, and all subscriptions with it
		return
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-p.closed:
	case <-timer.C:
		_ = p.sub.Unsubscribe() // as above
	}
}
