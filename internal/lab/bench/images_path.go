package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Column keys of requests with images.
const (
	keyMoveMS    = "move_ms_per_image"
	keyTimesITL  = "times_idle_itl_p50"
	keyTimesTTFT = "times_prefill_ttft_p50"
)

// imagesBench measures requests with images through nodes.
type imagesBench struct{ disaggBench }

// measure runs text streams on every node, alone and beside requests with images.
func (b *imagesBench) measure(ctx context.Context, sec *Section) error {
	sc := b.scale.images
	most := 0
	for _, n := range sc.images {
		most = max(most, n)
	}
	for _, encode := range sc.encode {
		name := fmt.Sprintf("%d encode workers", encode)
		switch encode {
		case 0:
			name = "encoding in the prefill worker"
		case 1:
			name = "1 encode worker"
		}
		n, err := b.node(ctx, nodeSpec{
			name: name, model: b.model, prefill: 1, decode: 1, encode: encode, devices: b.devices(), strategy: protocol.StrategyDecodeFirst,
			blocks: (sc.streams*(sc.output+rigBlockSize)+2*most*b.rows())/rigBlockSize + 64,
		})
		if err != nil {
			return err
		}
		b.nodes = append(b.nodes, n)
		if err := b.encodes(ctx, n); err != nil {
			return err
		}
	}
	at := func(n *node, images int) string {
		switch images {
		case 0:
			return n.spec.name + ", no request"
		case 1:
			return n.spec.name + ", 1 image"
		}
		return fmt.Sprintf("%s, %d images", n.spec.name, images)
	}
	var cases []Case
	for _, images := range append([]int{0}, sc.images...) {
		for _, n := range b.nodes {
			cases = append(cases, Case{at(n, images), func(ctx context.Context) (Sample, error) { return b.look(ctx, n, images) }})
		}
	}
	res, err := b.takeTurns(ctx, "images, requests beside streams", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, images := range sc.images {
		for _, n := range b.nodes {
			res.ratio(at(n, images), keyTimesTTFT, keyTTFT+"_p50", at(b.nodes[0], images), 1)
			res.ratio(at(n, images), keyTimesITL, keyITL+"_p50", at(n, 0), 1)
			res.ratio(at(n, images), keyITLTimes, keyITL+"_p99", at(n, 0), 1)
		}
	}
	sec.Tables = append(sec.Tables, res.table("Requests with images beside text streams",
		fmt.Sprintf("Requests with fresh images of %d rows, one after the other, while %d streams of text decode.\n"+
			"A node has a prefill and a decode worker on two devices, and its encode workers beside them;\n"+
			"all share the machine's cores. Idle is the same streams without a request, for %s.", b.rows(), sc.streams, sc.idle), []Column{
			{keyTTFT + "_p50", "TTFT p50 ms", ""}, {keyTTFT + "_p99", "p99", ""},
			{keyTimesTTFT, "× in prefill", "TTFT p50 against encoding in the prefill worker"},
			{keyITL + "_p50", "ITL p50 ms", "of the streams of text, as the client reads them"}, {keyITL + "_p99", "p99", ""},
			{keyTimesITL, "p50 × idle", ""}, {keyITLTimes, "p99 × idle", ""},
			{keyMoveMS, "moved ms/image", "reading embeddings from an encode worker"},
			{keyHidden, "% hidden", "share of that time that passed while another image of the request was being encoded"},
		}))
	return nil
}

// rows is the number of rows of an image.
func (b *imagesBench) rows() int { return b.pathBench.model.Config().Vision.Tokens() }

// encodes waits until images are encoded where they are to be.
func (b *imagesBench) encodes(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, errNotUp)
	defer cancel()
	by := map[string]bool{}
	for len(by) < max(1, n.spec.encode) {
		told, _, err := b.request(ctx, n, 2)
		if err != nil {
			return fmt.Errorf("start node %s: %w", n.spec.name, err)
		}
		if (told.Why == "") == (n.spec.encode > 0) {
			for _, w := range told.EncodedBy {
				by[w] = true
			}
		}
	}
	return nil
}

// look runs the streams of text beside requests with images, or alone for none.
func (b *imagesBench) look(ctx context.Context, n *node, images int) (Sample, error) {
	sc := b.scale.images
	target := b.client.to(n.url)
	running, stop := context.WithCancelCause(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer stop(errDone)
	heard := newArrivals(sc.streams)
	for i := range sc.streams {
		q, err := b.ask.question(ctx, 1, sc.output)
		if err != nil {
			return nil, err
		}
		q.arrived = func() { heard.add(i) }
		streams.Go(func() {
			_, err := target.answer(running, q)
			if err == nil {
				err = errNoOverlap // it should run until stop
			}
			stop(err)
		})
	}
	if err := heard.wait(running, time.Time{}); err != nil {
		return nil, err
	}
	s := Sample{}
	from := time.Now()
	if images == 0 {
		select {
		case <-time.After(sc.idle):
		case <-running.Done():
			return nil, context.Cause(running)
		}
	}
	var ttft []time.Duration
	var move, exposed float64
	requests := 0
	if images > 0 {
		requests = max(2, sc.requests/images)
	}
	for range requests {
		told, took, err := b.request(running, n, images)
		if err != nil {
			return nil, errors.Join(err, context.Cause(running))
		}
		if told.Count != images || told.Cached > 0 || (told.Why == "") != (n.spec.encode > 0) {
			return nil, fmt.Errorf("%w: %+v", errEncoded, told)
		}
		ttft = append(ttft, took)
		move, exposed = move+told.MoveMS, exposed+told.ExposedMS
	}
	to := time.Now()
	if err := heard.wait(running, to); err != nil { // a gap that is open now counts in full
		return nil, err
	}
	s.tail(keyTTFT, ttft, time.Millisecond)
	s.tail(keyITL, heard.gaps(from, to), time.Millisecond)
	if move > 0 {
		s[keyMoveMS], s[keyHidden] = move/float64(images*requests), max(0, 1-exposed/move)*100
	}
	return s, nil
}

// errEncoded is returned when images were not encoded where they should have been.
var errEncoded = errors.New("images were not encoded as they should have been")

// encoded is what a frontend says about the images of a request.
type encoded struct {
	Count, Cached int
	MoveMS        float64  `json:"move_ms"`
	ExposedMS     float64  `json:"exposed_ms"`
	EncodedBy     []string `json:"encoded_by"`
	Why           string
}

// request asks for one token about fresh images.
func (b *imagesBench) request(ctx context.Context, n *node, images int) (told encoded, ttft time.Duration, err error) {
	parts := []any{map[string]any{"type": "text", "text": fmt.Sprintf("%x the worker writes", rand.Uint64())}}
	for range images {
		url, err := picture(b.pathBench.model.Config().Vision.ImageSize)
		if err != nil {
			return told, 0, err
		}
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}})
	}
	parts = append(parts, map[string]any{"type": "text", "text": "a block and reads its prefix"})
	body, err := json.Marshal(map[string]any{
		"model": cluster.BuiltinModelName, "messages": []any{map[string]any{"role": "user", "content": parts}}, "max_tokens": 1,
		"temperature": 0, "ignore_eos": true, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"nvext": map[string]any{"extra_fields": []string{"timing"}},
	})
	if err != nil {
		return told, 0, fmt.Errorf("make request: %w", err)
	}
	q := question{body: body, output: 1, timing: func(line []byte) error {
		var e struct {
			NVExt struct{ Timing struct{ Images encoded } }
		}
		err := json.Unmarshal(line, &e)
		told = e.NVExt.Timing.Images
		return err
	}}
	begin := time.Now()
	_, err = b.client.to(n.url).answer(ctx, q)
	return told, time.Since(begin), err // the answer is its first token, which may have no text
}

// picture is a random drawing of a size in pixels as a data URL.
func picture(size int) (string, error) {
	m := image.NewRGBA(image.Rect(0, 0, size, size))
	a, b, c := rand.IntN(256), rand.IntN(256), rand.IntN(256)
	for y := range size {
		for x := range size {
			m.SetRGBA(x, y, color.RGBA{uint8(x + a), uint8(y + b), uint8((x*y)>>4 + c), 255})
		}
	}
	m.SetRGBA(rand.IntN(size), rand.IntN(size), color.RGBA{uint8(rand.IntN(256)), uint8(rand.IntN(256)), uint8(rand.IntN(256)), 255})
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, m); err != nil {
		return "", fmt.Errorf("draw: %w", err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes()), nil
}
