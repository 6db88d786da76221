package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// clientPatience is how long a request may take with everything that happens to it, on a busy
// machine under the race detector.
const clientPatience = 2 * time.Minute

// remoteLimit bounds a remote prefill that is not cut short on purpose. It is what the
// loss of the only word about its end costs.
const remoteLimit = 2 * time.Second

// errLeft is why a client takes its request back.
var errLeft = errors.New("the client left")

// client sends one request and follows it across workers, as a frontend does, until it
// has all tokens or takes the request back.
func (x *exploration) client(ctx context.Context, i int, r *rand.Rand) {
	p := prompt(r, 1+r.IntN(160))
	if r.IntN(2) == 0 {
		p = append(slices.Clone(x.bases[r.IntN(len(x.bases))]), p...)
	}
	n := 1 + r.IntN([]int{20, 100, 600}[r.IntN(3)])
	id := fmt.Sprint("r", i)
	req := request(id, p, n)
	bad := false
	if r.IntN(2) == 0 {
		var giveBack func()
		p, bad, giveBack = x.illustrate(r, &req)
		defer giveBack()
		x.add("illustrated")
	}
	want := mock.Continue(p, n, vocab)
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	if r.IntN(4) == 0 {
		defer time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, func() { leave(errLeft) }).Stop()
	}
	var got []uint32
	var moved *protocol.Moved
	for attempt := 0; ; attempt++ {
		req.RequestID = fmt.Sprint(id, "~", attempt)
		out := x.attempt(ctx, r, req, moved)
		got = append(got, out.tokens...)
		moved = out.moved
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			x.blame("%s, prompt of %d, attempt %d (%+v): got %v, want %v", id, len(p), attempt, out.timing, got, want)
			return
		}
		req.Advance(out.tokens)
		switch ended := context.Cause(ctx); { // asked once: the client may leave at any time
		case out.finish == protocol.FinishLength:
			x.add("finished")
			if bad {
				x.blame("%s has an image that is none, and an answer", id)
			}
			if len(got) != len(want) {
				x.blame("%s ended after %d of %d tokens", id, len(got), n)
			}
			return
		case moved != nil:
			x.add("moves")
			x.pause(ctx, r, 100)
		case errors.Is(ended, errLeft):
			x.add("left")
			return
		case ended != nil:
			x.blame("%s did not end in %s: %d of %d tokens in %d attempts, last %v", id, clientPatience, len(got), n, attempt+1, out.err)
			x.stuck()
			return
		case bad && refused(out.err):
			x.add("refused")
			return
		case !elsewhere(out.err):
			x.blame("%s failed: %v", id, out.err)
			return
		case strings.Contains(out.err.Error(), "no such content"):
			x.blame("%s failed for the content of another request: %v", id, out.err)
			return
		default:
			x.add("replays")
			x.pause(ctx, r, 5)
		}
	}
}

// pause lets up to so many milliseconds pass.
func (x *exploration) pause(ctx context.Context, r *rand.Rand, most int) {
	wait := time.NewTimer(time.Duration(r.IntN(most*1000)) * time.Microsecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// elsewhere says whether a request may go on at another worker, as the frontend decides.
func elsewhere(err error) bool {
	var remote *requestplane.RemoteError
	return errors.Is(err, requestplane.ErrOverloaded) || requestplane.NotStarted(err) || errors.Is(err, requestplane.ErrDisconnected) || errors.Is(err, errNoWorker) ||
		errors.As(err, &remote) && (remote.Kind == requestplane.KindUnavailable || remote.Kind == requestplane.KindCancelled)
}

// refused says whether a request was refused because of its images.
func refused(err error) bool {
	var remote *requestplane.RemoteError
	return errors.As(err, &remote) && remote.Kind == requestplane.KindInvalidArgument && strings.Contains(remote.Message, "its format is unknown")
}

// attempt runs a request on one worker, that to which it has moved if there is one.
func (x *exploration) attempt(ctx context.Context, r *rand.Rand, req protocol.PreprocessedRequest, moved *protocol.Moved) (out result) {
	inst, ok := x.target(r, moved)
	if !ok {
		return result{err: errNoWorker}
	}
	letGo := func() {}
	if moved != nil {
		req.Handover = moved.Handover
	}
	hop := x.firstHop(ctx, r, &req)
	if hop != nil {
		letGo = hop.Close
	}
	defer func() { letGo() }()
	if hop != nil && r.IntN(10) == 0 {
		letGo() // a frontend that gives up, or dies
	}
	s, err := x.calls.Call(ctx, inst, req.RequestID, nil, req)
	if err != nil {
		return result{err: err}
	}
	defer s.Close()
	for {
		var o protocol.EngineOutput
		if err := s.Recv(ctx, &o); err != nil {
			if errors.Is(err, io.EOF) {
				err = requestplane.ErrIncomplete
			}
			out.err = err
			return out
		}
		x.heard.Add(1)
		out.tokens = append(out.tokens, o.TokenIDs...)
		if o.Timing != nil {
			out.timing = o.Timing
			x.count(o.Timing)
			letGo()
		}
		switch o.Finish {
		case protocol.FinishNone:
			continue
		case protocol.FinishCancelled:
			out.err = requestplane.ErrIncomplete
			return out
		}
		out.finish, out.moved = o.Finish, o.Moved
		return out
	}
}

func (x *exploration) count(t *protocol.Timing) {
	if t.Prefill == "local" {
		x.add("local: " + t.PrefillWhy)
		return
	}
	x.add("remote")
	x.add("remote: " + string(t.PrefillWay))
}

func (x *exploration) target(r *rand.Rand, moved *protocol.Moved) (inst cluster.Instance, ok bool) {
	all := x.calls.Instances()
	if moved != nil {
		for _, i := range all {
			if i.InstanceID == moved.InstanceID {
				return i, true
			}
		}
	}
	if len(all) == 0 {
		return inst, false
	}
	return all[r.IntN(len(all))], true
}

// firstHop decides how the prompt of a request is prefilled, and says so in it. The
// stream of the prefill worker is nil if the frontend asked none.
func (x *exploration) firstHop(ctx context.Context, r *rand.Rand, req *protocol.PreprocessedRequest) requestplane.Stream {
	hints := protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Why: "chance"}
	defer func() { req.Disagg = hints }()
	way := r.IntN(10)
	if way < 4 {
		hints = protocol.DisaggHints{}
		return nil
	}
	pre := x.prefill.Instances()
	if len(pre) == 0 || way == 9 {
		return nil
	}
	inst := pre[r.IntN(len(pre))]
	deadline := time.Now().Add([]time.Duration{3 * time.Millisecond, 30 * time.Millisecond, remoteLimit, remoteLimit}[r.IntN(4)])
	first := *req
	first.Disagg = protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Deadline: deadline}
	if way < 7 {
		first.Disagg.Bootstrap = x.roomAt(ctx, inst, r.Uint64()>>1)
		if first.Disagg.Bootstrap == nil {
			return nil
		}
	}
	s, err := x.prefill.Call(ctx, inst, first.RequestID, nil, first)
	if err != nil {
		return nil
	}
	var o protocol.EngineOutput
	wait, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := s.Recv(wait, &o); err != nil || first.Disagg.Bootstrap == nil && o.Params == nil {
		s.Close()
		return nil
	}
	hints.Why, hints.Params, hints.Bootstrap, hints.Deadline = "", o.Params, first.Disagg.Bootstrap, deadline
	return s
}

// roomAt is a fresh room of a prefill worker, nil if that has none or cannot be asked.
func (x *exploration) roomAt(ctx context.Context, inst cluster.Instance, room uint64) *protocol.BootstrapInfo {
	kv, err := x.c.Store.Get(ctx, cluster.CardKey(cluster.DefaultNamespace, "prefill", cluster.EndpointPrefill, inst.InstanceID))
	if err != nil {
		return nil
	}
	card, err := decodeCard(kv)
	if err != nil || card.Runtime.Disaggregated == nil {
		return nil
	}
	return &protocol.BootstrapInfo{Worker: inst.Worker, ID: inst.InstanceID, Address: card.Runtime.Disaggregated.Address(inst.InstanceID), Room: room}
}
