package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/media/source"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/tensorfile"
)

// pictures is how a model reads images; nil for a model of text.
type pictures struct {
	proc  *prepare.Processor
	token uint32
	salt  [sha256.Size]byte // of the files that say how images are prepared
}

// newPictures reads the files of a model that takes images.
func newPictures(card cluster.ModelCard, files map[string][]byte) (*pictures, error) {
	if card.Images == nil {
		return nil, nil
	}
	const preprocessor, processor, config = "preprocessor_config.json", "processor_config.json", "config.json"
	proc, err := prepare.Load(prepare.Files{Preprocessor: files[preprocessor], Processor: files[processor], Config: files[config]})
	if err != nil {
		return nil, fmt.Errorf("how the model prepares images: %w", err)
	}
	p := &pictures{proc: proc, token: card.Images.Token}
	h := sha256.New()
	for _, name := range []string{preprocessor, processor, config} {
		sum := sha256.Sum256(files[name])
		_, _ = h.Write(sum[:]) // never fails
	}
	h.Sum(p.salt[:0])
	return p, nil
}

// way returns what prepares an image, and whether that is another way than usual.
func (p *pictures) way(low bool) (proc *prepare.Processor, other bool) {
	if low {
		proc = p.proc.Low()
		return proc, proc != p.proc
	}
	return p.proc, false
}

// key identifies the embeddings of content; low says that they are of fewer details.
func (p *pictures) key(id string, low bool) (key blockhash.Key) {
	h := sha256.New()
	_, _ = h.Write(p.salt[:])
	_, _ = h.Write([]byte(id))
	if low {
		_, _ = h.Write([]byte("low")) // no id is a beginning of another
	}
	copy(key[:], h.Sum(nil))
	return key
}

// imageAsk is an image as a request names it.
type imageAsk struct {
	at  string // path of the field
	url string
	low bool // detail
}

// image is an image that was loaded.
type image struct {
	id   string
	size int64
	kind protocol.MediaKind
	low  bool // prepared in another way than usual
	plan prepare.Plan
}

// planImage says what becomes of an image. It reads no more than its header.
func planImage(proc *prepare.Processor, data []byte, most int64) (prepare.Plan, error) {
	o := proc.DecodeOptions()
	o.Limits.Bytes = int(most)
	w, h, err := picture.Size(data, o)
	if err != nil {
		return prepare.Plan{}, err
	}
	return proc.Plan(w, h)
}

// planEmbeddings says what becomes of a file of embeddings.
func (p *pictures) planEmbeddings(data []byte) (prepare.Plan, error) {
	rows, _, err := tensorfile.Rows(data)
	if err != nil {
		return prepare.Plan{}, err
	}
	grid, _, err := tensorfile.Grid(data)
	if err != nil {
		return prepare.Plan{}, err
	}
	return p.proc.PlanRows(rows, grid)
}

const (
	// maxImages bounds the images of one request.
	maxImages = 64
	// maxLoading bounds how long the images of one request may take to come.
	maxLoading = 2 * time.Minute
	// loadingAtOnce bounds the images of one request that are loaded at the same time.
	loadingAtOnce = 4
)

// readImage takes in a content part of type image_url.
func (q *chatRequest) readImage(at string, raw json.RawMessage) *apiError {
	at += ".image_url"
	if len(raw) == 0 || isNull(raw) {
		return missing(at)
	}
	var url, detail string
	if raw[0] == '"' {
		if json.Unmarshal(raw, &url) != nil {
			return wrongType(at, "an object with a url")
		}
	} else if err := members(raw, func(key string, value json.RawMessage) (err error) {
		switch {
		case key == "url" && !isNull(value):
			err = json.Unmarshal(value, &url)
		case key == "detail" && !isNull(value):
			err = json.Unmarshal(value, &detail)
		}
		return err
	}); err != nil {
		return wrongType(at, "an object with a url")
	}
	switch {
	case url == "":
		return missing(at + ".url")
	case detail != "" && detail != "auto" && detail != "low" && detail != "high":
		return wrongValue(at+".detail", "'%s' is not supported, only 'auto', 'low' and 'high' are", detail)
	case len(q.images) == maxImages:
		return wrongValue("messages", "at most %d images are allowed", maxImages)
	}
	q.images = append(q.images, imageAsk{at, url, detail == "low"})
	return nil
}

// withoutURLs returns a message whose images are parts that chat templates know.
func withoutURLs(raw json.RawMessage) (json.RawMessage, error) {
	out := []byte{'{'}
	err := members(raw, func(key string, value json.RawMessage) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendString(out, key), ':')
		if key != "content" || len(value) == 0 || value[0] != '[' {
			out = append(out, value...)
			return nil
		}
		out = append(out, '[')
		err := elements(value, maxParts, func(i int, part json.RawMessage) error {
			if i > 0 {
				out = append(out, ',')
			}
			image := false
			err := members(part, func(key string, value json.RawMessage) error {
				image = image || key == "type" && string(value) == `"image_url"`
				return nil
			})
			if image {
				part = json.RawMessage(`{"type":"image"}`)
			}
			out = append(out, part...)
			return err
		})
		out = append(out, ']')
		return err
	})
	return append(out, '}'), err
}

func (q *chatRequest) hasImages() bool { return len(q.images) > 0 }

// load gets the images of a conversation, so that workers can fetch them until free is
// called.
func (q *chatRequest) load(ctx context.Context, f *Frontend, m *servedModel, tenant string) *apiError {
	switch {
	case len(q.images) == 0:
		return nil
	case m.pictures == nil:
		return invalid(q.images[0].at, "The model '%s' does not take images.", q.model)
	case q.truncate != nil:
		return invalid("truncate_prompt_tokens", "A prompt with images cannot be truncated.")
	case q.promptLogprobs:
		return invalid("prompt_logprobs", "A prompt with images has no log probabilities.")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxLoading, overloaded(metrics.RefusedImages, "The images of this request did not come in time, please retry later."))
	defer cancel()
	q.loaded, q.from = make([]image, len(q.images)), f.cfg.Runtime.ID()
	bad := make([]*apiError, len(q.images))
	slots := make(chan struct{}, loadingAtOnce)
	var wg sync.WaitGroup
	for i := range q.images {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			bad[i] = q.loadOne(ctx, f, m.pictures, tenant, i)
		})
	}
	wg.Wait()
	for _, err := range bad {
		if err != nil {
			return err
		}
	}
	for i := range q.messages {
		rewritten, err := withoutURLs(q.messages[i])
		if err != nil { // it was read before
			return wrongType("messages", "a list of messages")
		}
		q.messages[i] = rewritten
	}
	return nil
}

func (q *chatRequest) loadOne(ctx context.Context, f *Frontend, p *pictures, tenant string, i int) *apiError {
	ask := &q.images[i]
	at := ask.at + ".url"
	leave, err := f.loads.enter(ctx, tenant)
	if err != nil {
		return asAPIError(err)
	}
	defer leave()
	got, err := f.cfg.Media.Get(ctx, ask.url)
	ask.url = "" // data URLs are large
	switch {
	case ctx.Err() != nil:
		return asAPIError(context.Cause(ctx))
	case errors.Is(err, source.ErrRefused):
		f.log.Warn("image of a request not loaded", "field", at, "error", source.Reason(err))
		return invalid(at, "The image cannot be loaded.").withCode("image_not_loaded")
	case errors.Is(err, source.ErrTooLarge):
		return invalid(at, "The image is too large: at most %d bytes are allowed.", f.cfg.Media.MaxBytes()).withCode("image_too_large")
	case err != nil:
		return wrongValue(at, "%v", err)
	}
	img := image{size: int64(len(got.Data)), kind: protocol.MediaImage}
	if got.Embeddings {
		img.kind = protocol.MediaEmbeddings
		img.plan, err = p.planEmbeddings(got.Data)
	} else {
		var proc *prepare.Processor
		proc, img.low = p.way(ask.low)
		img.plan, err = planImage(proc, got.Data, f.cfg.Media.MaxBytes())
	}
	if err != nil {
		return invalid(at, "The image cannot be read: %v.", err).withCode("invalid_image")
	}
	var release func()
	var ok bool
	img.id, release, ok = f.contents.add(got.Data)
	if !ok {
		return overloaded(metrics.RefusedImages, "The images of the requests in work take all memory for them, please retry later.")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releases = append(q.releases, release)
	q.loaded[i] = img
	return nil
}

// gridOf returns how the rows of an image stand.
func gridOf(plan prepare.Plan) protocol.Grid {
	return protocol.Grid{T: plan.Places[0], H: plan.Places[1], W: plan.Places[2]}
}

// free lets go of the images.
func (q *chatRequest) free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, release := range q.releases {
		release()
	}
	q.releases = nil
}

// illustrate writes what stands for each image into a prompt, in place of the placeholders of
// the chat template.
func (q *chatRequest) illustrate(m *servedModel, prompt string) (string, *apiError) {
	if len(q.loaded) == 0 {
		return prompt, nil
	}
	placeholder := m.pictures.proc.Placeholder()
	pieces := strings.Split(prompt, placeholder)
	if n := len(pieces) - 1; n != len(q.loaded) {
		return "", invalid("messages", "The chat template makes %d places for %d images. The text of messages must not contain '%s'.", n, len(q.loaded), placeholder)
	}
	var b strings.Builder
	for i, piece := range pieces {
		b.WriteString(piece)
		if i < len(q.loaded) {
			b.WriteString(q.loaded[i].plan.Text)
		}
	}
	return b.String(), nil
}

// locate finds the images in the tokens of a prompt.
func (q *chatRequest) locate(m *servedModel, ids []uint32) *apiError {
	if len(q.loaded) == 0 {
		return nil
	}
	token, at := m.pictures.token, 0
	for _, img := range q.loaded {
		part := protocol.MediaPart{
			Rows: img.plan.Tokens, Token: token, Grid: gridOf(img.plan), Key: m.pictures.key(img.id, img.low), Kind: img.kind, Low: img.low,
			Source: protocol.MediaSource{Frontend: q.from, ID: img.id, Size: img.size},
		}
		for n := 0; n < part.Rows; n++ {
			i := slices.Index(ids[at:], token)
			if i < 0 {
				return internalError("The tokenizer of the model does not know the token for images.")
			}
			if n == 0 {
				part.Start = at + i
			}
			at += i + 1
		}
		part.End = at
		q.media = append(q.media, part)
	}
	if slices.Contains(ids[at:], token) {
		return invalid("messages", "The text of messages must not contain the token for images.")
	}
	return nil
}
