package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// maxPeersAsked limits how many other workers one activity request asks for the progress
// of transfers.
const maxPeersAsked = 4

// Activity asks a worker for its sequences and KV transfers. Only the worker that writes
// KV knows how much of it has arrived, so Activity also asks the writers of incoming
// transfers. If the worker does not answer within a second, [cluster.Activity.Error] is
// set.
func (c *Cluster) Activity(ctx context.Context, v View, worker string) cluster.Activity {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	a, err := c.askActivity(ctx, v, worker, nil)
	if err != nil {
		return cluster.Activity{Worker: worker, Sequences: []cluster.Sequence{}, Transfers: []cluster.Transfer{}, Error: err.Error()}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, peer := range writers(a) {
		wg.Go(func() {
			there, err := c.askActivity(ctx, v, peer, nil)
			if err != nil {
				return // the progress stays unknown
			}
			mu.Lock()
			defer mu.Unlock()
			complete(&a, there)
		})
	}
	wg.Wait()
	return a
}

// Embeddings asks a worker where it would get embeddings now, by their keys, at most
// [protocol.MaxKeys], and how many images it has in hand.
func (c *Cluster) Embeddings(ctx context.Context, v View, worker string, keys []blockhash.Key) (at []cluster.EmbeddingsAt, inHand int, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	a, err := c.askActivity(ctx, v, worker, keys)
	if err == nil && len(a.Embeddings) != len(keys) {
		err = errors.New("it takes no images")
	}
	return a.Embeddings, a.ImagesTotal, err
}

// writers returns the workers that know the progress of incoming transfers.
func writers(a cluster.Activity) []string {
	var out []string
	for _, t := range a.Transfers {
		if unknownProgress(t) && !slices.Contains(out, t.Peer) && len(out) < maxPeersAsked {
			out = append(out, t.Peer)
		}
	}
	return out
}

func unknownProgress(t cluster.Transfer) bool {
	return t.Direction == cluster.TransferIn && t.BlocksDone == nil && t.Peer != "" && t.Kind != cluster.TransferRead
}

// complete fills in the progress of transfers that their writer reports.
func complete(a *cluster.Activity, writer cluster.Activity) {
	for i := range a.Transfers {
		t := &a.Transfers[i]
		if !unknownProgress(*t) || t.Peer != writer.Worker {
			continue
		}
		for _, o := range writer.Transfers {
			if o.Direction == cluster.TransferOut && o.Peer == a.Worker && o.RequestID == t.RequestID && o.Kind == t.Kind {
				t.BlocksDone, t.BytesDone = o.BlocksDone, o.BytesDone
			}
		}
	}
}

// askActivity asks one worker. Workers limit the size of their answers themselves.
func (c *Cluster) askActivity(ctx context.Context, v View, worker string, keys []blockhash.Key) (a cluster.Activity, err error) {
	addr := ""
	for _, inst := range v.Instances {
		if inst.Worker == worker && inst.Endpoint == cluster.EndpointActivity {
			addr = inst.Transport.Address()
		}
	}
	if addr == "" {
		return a, errors.New("it is not up")
	}
	begin := time.Now()
	stream, err := c.plane.Call(ctx, addr, requestID("activity"), nil, protocol.ActivityRequest{Keys: keys})
	if err == nil {
		err = stream.Recv(ctx, &a)
		stream.Close()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return a, fmt.Errorf("no answer in %s", time.Since(begin).Round(100*time.Millisecond))
	}
	if err == nil && a.Worker != worker {
		err = fmt.Errorf("%q answered instead", a.Worker)
	}
	if a.Sequences == nil {
		a.Sequences = []cluster.Sequence{}
	}
	if a.Transfers == nil {
		a.Transfers = []cluster.Transfer{}
	}
	return a, err
}
