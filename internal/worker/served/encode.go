package served

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// encode computes the embeddings of images, sounds and videos for other servers.
type encode struct {
	*duty
	encoder external.Encoder
}

// Register implements role.Role.
func (d *encode) Register(ctx context.Context) error {
	return d.register(ctx, cluster.EndpointEncode(d.Term.Model.Digest), d.serve)
}

// InHand implements role.Role.
func (d *encode) InHand(limit int) ([]cluster.ImageWork, int) {
	oldest, n := d.s.oldest(limit, func(r *request) bool { return r.reader != "" })
	var out []cluster.ImageWork
	for _, r := range oldest {
		out = append(out, cluster.ImageWork{RequestID: r.id, Worker: r.reader, State: cluster.ImageEncoding, AgeMS: time.Since(r.began).Milliseconds()})
	}
	return out, n
}

func (d *encode) serve(ctx context.Context, req *requestplane.Request, send func(any) error) (err error) {
	var q protocol.EncodeItem
	if err := req.Decode(&q); err != nil {
		return err
	}
	if err := d.CheckModel(q.ModelSum); err != nil {
		return err
	}
	if own := d.s.Facts.Version; own != "" && q.Version != "" && own != q.Version {
		return unavailable("%s has %s %s, the server with the prompt has %s: what one tells, the other may not understand", d.Worker, d.s.Backend, own, cut(q.Version))
	}
	p := &protocol.PreprocessedRequest{RequestID: q.RequestID, API: protocol.APIChat, Body: q.Body}
	if q.Worker == "" {
		return invalid("an item to encode needs the name of the worker that has the prompt")
	}
	entry, err := d.s.admit(p, q.Worker)
	if err != nil {
		return err
	}
	defer func() { d.s.release(entry, err) }()
	ctx, end := d.s.during(ctx)
	defer end()
	r := &external.Request{PreprocessedRequest: p, Model: d.s.Model}
	told, err := d.encoder.Encode(ctx, r)
	if err != nil {
		return d.s.failed(ctx, r, err)
	}
	took := time.Since(entry.began)
	d.s.encoded(took)
	d.Meter.Encoded(false, took)
	if d.s.Encoded != nil {
		d.s.Encoded(cluster.Encoding{Time: time.Now(), RequestID: q.RequestID, For: q.Worker, Content: cut(q.Content), TookNS: int64(took)})
	}
	return send(protocol.EncodedItem{Told: told, Worker: d.Worker})
}
