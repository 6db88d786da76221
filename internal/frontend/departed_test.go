package frontend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// A worker that leaves is told when the frontend chooses it no more: not before it left
// discovery, and for prefill workers as for decode workers.
func TestRoutersAcknowledgeDepartures(t *testing.T) {
	for _, role := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		t.Run(string(role), func(t *testing.T) {
			w := newWorld(t)
			w.fake("worker-1", say("one"))
			f := w.frontend().waitModel(1)
			leaver := w.fake("worker-2", say("two"), func(fk *fake) { fk.card.WorkerType = role })
			id := leaver.drt.ID()
			patience.Until(t, "the frontend knows worker-2", func() bool {
				return len(f.workers.Instances())+len(f.prefills.Instances()) == 2
			})
			calls := runtimetest.Client(t, leaver.drt, cluster.ComponentFrontend, cluster.EndpointDeparted)
			wait, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := calls.Wait(wait, 1); err != nil {
				t.Fatal(err)
			}
			ask := func() (answer protocol.Departed, err error) {
				s, err := calls.Call(wait, calls.Instances()[0], "departed-1", nil, protocol.DepartedRequest{InstanceID: id})
				if err != nil {
					return answer, err
				}
				defer s.Close()
				return answer, s.Recv(wait, &answer)
			}
			var remote *requestplane.RemoteError
			if _, err := ask(); !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
				t.Errorf("worker-2 serves: got %v", err)
			}
			type told struct {
				answer protocol.Departed
				err    error
			}
			answered := make(chan told, 1)
			go func() {
				a, err := ask()
				answered <- told{a, err}
			}()
			if err := leaver.served.Leave(wait); err != nil {
				t.Fatal(err)
			}
			got := <-answered
			for errors.As(got.err, &remote) && wait.Err() == nil { // the machine was slow: ask again
				got.answer, got.err = ask()
			}
			if got.err != nil || got.answer.InstanceID != id {
				t.Errorf("worker-2 left: got %+v, %v", got.answer, got.err)
			}
			for _, i := range append(f.workers.Instances(), f.prefills.Instances()...) {
				if i.InstanceID == id {
					t.Errorf("the frontend still has %+v", i)
				}
			}
		})
	}
}
