package served

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/media"
)

const (
	// maxItems bounds the images, sounds and videos of a request that are encoded elsewhere, and
	// maxAtOnce those that encode workers have in hand for it at a time.
	maxItems  = 256
	maxAtOnce = 16
	// contentDigits is how much of the hash of a content names it in events.
	contentDigits = 12
)

// elsewhere has servers that encode compute the embeddings for the prompts of this one.
type elsewhere struct {
	*duty
	encoder external.Encoder
	media   *media.Encoders
}

// follow finds the servers that encode for the model of the term. It returns nil if the server
// takes embeddings of none: its engine does not, or prompts reach it as tokens.
func (d *duty) follow(ctx context.Context) (*elsewhere, error) {
	encoder, ok := d.s.Engine.(external.Encoder)
	if !ok || d.s.Tokenizer != nil {
		return nil, nil
	}
	found, err := media.Follow(ctx, d, cluster.Endpoint{Component: cluster.RoleEncode.Component(), Name: cluster.EndpointEncode(d.Term.Model.Digest)})
	return &elsewhere{duty: d, encoder: encoder, media: found}, err
}

// embed has what a request shows or plays encoded, all at once, and notes in r what its server is to
// be told. What nobody has encoded the server encodes itself, and about.Why says why. An adapter
// may have changed how the model sees: its server encodes for it.
func (e *elsewhere) embed(ctx context.Context, r *external.Request) (about protocol.Encoded, err error) {
	if e == nil || r.Body == nil || r.Adapter != "" || len(e.media.Instances()) == 0 {
		return about, nil
	}
	items, err := e.encoder.Items(r)
	switch {
	case err != nil:
		return about, err
	case len(items) == 0:
		return about, nil
	case len(items) > maxItems:
		return about, invalid("%d images, sounds and videos: at most %d can be encoded for one request", len(items), maxItems)
	}
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	about.Parts = len(items)
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, maxAtOnce)
	for i := range items {
		wg.Go(func() {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return
			}
			got, chosen, err := e.ask(ctx, r, i, &items[i])
			mu.Lock()
			defer mu.Unlock()
			switch bad := final(err); {
			case err == nil:
				r.Encoded = append(r.Encoded, got.Told)
				about.By, about.Chosen = append(about.By, got.Worker), append(about.Chosen, chosen)
			case bad != nil:
				cancel(invalid("image, sound or video %d: %s", i+1, bad.Message)) // the first one counts
			default:
				about.Why = err.Error()
				about.By, about.Chosen = append(about.By, e.Worker), append(about.Chosen, about.Why)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return about, err
	}
	about.NS = int64(time.Since(begin))
	return about, nil
}

// ask has one item encoded by the first worker that can.
func (e *elsewhere) ask(ctx context.Context, r *external.Request, i int, item *external.MediaItem) (got protocol.EncodedItem, chosen string, err error) {
	order, chosen := e.media.Order(item.Key[:])
	err = errNoEncoder
	for _, inst := range order {
		if got, err = e.askOne(ctx, inst, r, i, item); err == nil || final(err) != nil || ctx.Err() != nil {
			return got, chosen, err
		}
		chosen = inst.Worker + " failed: " + err.Error()
		e.Log.Warn("no embeddings from an encode worker", "request", r.RequestID, "worker", inst.Worker, "error", err)
	}
	return got, chosen, err
}

var errNoEncoder = errors.New("no encode worker")

func (e *elsewhere) askOne(ctx context.Context, inst cluster.Instance, r *external.Request, i int, item *external.MediaItem) (got protocol.EncodedItem, err error) {
	e.media.Busy(inst.InstanceID, 1)
	defer e.media.Busy(inst.InstanceID, -1)
	late := fmt.Errorf("no embeddings within %v", e.s.Waits.Encode)
	ctx, cancel := context.WithTimeoutCause(ctx, e.s.Waits.Encode, late)
	defer cancel()
	id := r.RequestID + "#" + strconv.Itoa(i)
	defer func() {
		var remote *requestplane.RemoteError
		switch {
		case err != nil && ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.As(err, &remote) && remote.Kind == requestplane.KindTimeout: // the other side was a moment quicker to notice
			err = late
		}
	}()
	s, err := e.media.Call(ctx, inst, id, nil, protocol.EncodeItem{
		RequestID: id, Worker: e.Worker, ModelSum: e.Term.Model.Digest, Version: e.s.Facts.Version,
		Content: hex.EncodeToString(item.Key[:])[:contentDigits], Body: json.RawMessage(item.Body),
	})
	if err != nil {
		return got, err
	}
	defer s.Close()
	return got, s.Recv(ctx, &got)
}

// final returns the error with which every server would fail with the same item; nil if another
// one may do better.
func final(err error) *requestplane.RemoteError {
	var remote *requestplane.RemoteError
	if errors.As(err, &remote) && remote.Kind == requestplane.KindInvalidArgument {
		return remote
	}
	return nil
}
