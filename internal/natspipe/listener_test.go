package natspipe

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
)

// The first message to who dialed is that it was accepted, also if the hub beats or asks for
// beats before.
func TestAcceptIsFirst(t *testing.T) {
	s := startServer(t, server.Options{})
	hub, peer := s.hub(Config{}), natspipetest.Bus(t, s.URL())
	heard, subject := make(chan events.CoreMessage, 8), Root+".peer.pipe"
	stop, err := peer.Receive(subject, "", func(m events.CoreMessage) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := peer.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := hub.newConn(subject)
	if err != nil {
		t.Fatal(err)
	}
	hub.beat()
	if err := c.sendLocked(kindAccept, nil); err != nil {
		t.Fatal(err)
	}
	c.out.Unlock()
	hub.beat()
	for number, want := range []kind{kindAccept, kindBeat} {
		if h, _, err := parse((<-heard).Data); err != nil || h.kind != want || h.number != uint64(number) {
			t.Errorf("message %d: %+v %v, want kind %d", number, h, err, want)
		}
	}
}
