package kv_test

import (
	"context"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
)

// heard keeps what a listener is told.
type heard struct{ notices chan protocol.PrefillNotice }

func (h heard) Noticed(_ string, n protocol.PrefillNotice) { h.notices <- n }
func (heard) PeerLost(string)                              {}

// What a peer sends is a notice, or is dropped.
func TestListenDropsGarbage(t *testing.T) {
	n := kvtest.New(t)
	a, b := n.Open(t, "worker-1"), n.Open(t, "worker-2")
	if _, err := a.Agent().LoadRemote(b.Agent().Metadata()); err != nil {
		t.Fatal(err)
	}
	if err := a.Agent().Notify(t.Context(), b.Name(), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), b.Name(), protocol.PrefillNotice{Phase: protocol.PrefillDone, Ticket: "t"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h, over := heard{make(chan protocol.PrefillNotice, 2)}, make(chan struct{})
	go func() { defer close(over); b.Listen(ctx, h) }()
	if got := <-h.notices; got.Ticket != "t" || got.Phase != protocol.PrefillDone {
		t.Errorf("heard %+v", got)
	}
	cancel()
	<-over
}
