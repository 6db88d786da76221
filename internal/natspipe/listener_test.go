package natspipe

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
)

// The first message to who dialed is that it was accepted, also if the hub beats all the time.
func TestAcceptIsFirst(t *testing.T) {
	s := startServer(t, server.Options{})
	hub, peer := s.hub(Config{}), natspipetest.Bus(t, s.URL())
	ln, err := hub.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, subject := make(chan events.CoreMessage, 1<<16), Root+".peer.pipe"
	stop, err := peer.Receive(subject, "", func(m events.CoreMessage) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := peer.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := hub.newConn(subject)
	close(c.opened)
	ln.mu.Lock() // which the acceptance waits for
	opened := make(chan bool)
	go func() { opened <- ln.open(c) }()
	until(t, "the hub has the pipe", func() bool { return len(hub.all()) == 1 })
	hub.beat()
	ln.mu.Unlock()
	if !<-opened {
		t.Fatal("it is not accepted")
	}
	hub.beat()
	for number, want := range []kind{kindAccept, kindBeat} {
		if h, _, err := parse((<-heard).Data); err != nil || h.kind != want || h.number != uint64(number) {
			t.Errorf("message %d: %+v %v, want kind %d", number, h, err, want)
		}
	}
}
