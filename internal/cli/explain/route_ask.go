package explain

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/protocol"
)

// AskedRoute is where a prompt would go now, as -o json prints it.
type AskedRoute struct {
	// Decision is that of the frontend; Prefill is the worker that would compute the prompt,
	// empty if the decode worker decides that later.
	Decision cluster.RouterDecision `json:"decision"`
	Decode   string                 `json:"decode_worker"`
	Prefill  string                 `json:"prefill_worker,omitempty"`
	Images   []AskedImage           `json:"images"`
}

// AskedImage is where the embeddings of an image would come from now.
type AskedImage struct {
	Content string `json:"content"` // SHA-256 of the file
	Rows    int    `json:"rows"`
	Reader  string `json:"reader"`         // the worker that was asked: the one with the prompt
	Held    bool   `json:"held"`           // the reader has the embeddings
	Encoder string `json:"encoder"`        // else who would be asked for them
	Why     string `json:"why"`            // why that one
	Cached  bool   `json:"encoder_has"`    // the encoder has them, or is computing them
	InHand  int    `json:"encoder_images"` // images that it has in hand
}

// ask says where a prompt would go that was not sent.
func (o *RouteOptions) ask(ctx context.Context) error {
	s := o.Session
	var pictures []string
	for _, name := range o.Images {
		u, err := frontend.Picture(s, name)
		if err != nil {
			return &exit.Failure{Action: routeAction, Err: fmt.Errorf("--image: %w", err)}
		}
		pictures = append(pictures, u)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, frontend.ErrSilent)
	defer cancel()
	at, err := frontend.Find(ctx, s, frontend.Place{}, routeAction)
	if err != nil {
		return err
	}
	m, err := frontend.Model(ctx, s, at, routeAction, o.Model, askTimeout)
	if err != nil {
		return err
	}
	ran, err := at.Query(ctx, openai.Request{Model: m.ID, Messages: []openai.Message{{Role: "user", Content: o.Question}}, Images: pictures})
	if err != nil {
		return frontend.Failure(s, routeAction, at, cmp.Or(context.Cause(ctx), err))
	}
	r := AskedRoute{Decode: ran.Workers.Decode, Prefill: ran.Workers.Prefill, Images: []AskedImage{}}
	if err := json.Unmarshal(ran.Route, &r.Decision); err != nil {
		return &exit.Failure{Action: routeAction, Err: fmt.Errorf("%s does not tell its decision: %w", at.URL(), err)}
	}
	c, v, err := s.Look(ctx, routeAction)
	if err != nil {
		return err
	}
	if err := r.find(ctx, c, v, ran.Images); err != nil {
		return &exit.Failure{Action: routeAction, Err: err, Code: exit.Unreachable}
	}
	return r.print(o)
}

// find asks the worker with the prompt where it would get the embeddings of the images, and
// those that it names what they have.
func (r *AskedRoute) find(ctx context.Context, c *client.Cluster, v client.View, images []openai.QueriedImage) error {
	reader := cmp.Or(r.Prefill, r.Decode)
	if len(images) > protocol.MaxKeys {
		return fmt.Errorf("%d images, at most %d can be asked about", len(images), protocol.MaxKeys)
	}
	var keys []blockhash.Key
	for _, image := range images {
		b, err := hex.DecodeString(image.Key)
		if err != nil || len(b) != len(blockhash.Key{}) {
			return errors.New("the frontend names no key of an image")
		}
		keys = append(keys, blockhash.Key(b))
	}
	if len(keys) == 0 {
		return nil
	}
	places, _, err := c.Embeddings(ctx, v, reader, keys)
	if err != nil {
		return fmt.Errorf("ask %s about the images: %w", reader, err)
	}
	for i, at := range places {
		r.Images = append(r.Images, AskedImage{Content: images[i].Content, Rows: images[i].Rows, Reader: reader, Held: at.Cached, Encoder: at.Encoder, Why: at.Why})
	}
	for i := range r.Images {
		x := &r.Images[i]
		if x.Encoder == "" || x.Encoder == reader {
			continue
		}
		there, inHand, err := c.Embeddings(ctx, v, x.Encoder, keys[i:i+1])
		if err != nil {
			return fmt.Errorf("ask %s about the images: %w", x.Encoder, err)
		}
		x.Cached, x.InHand = there[0].Cached, inHand
	}
	return nil
}

// print writes the answer: people get sentences around the table of the decision.
func (r AskedRoute) print(o *RouteOptions) error {
	s := o.Session
	route := Route{Decisions: []cluster.RouterDecision{r.Decision}}
	a := output.Answer{Data: r, Names: []string{r.Decode}, Table: func(wide bool) *output.Table { return route.table(s, wide) }}
	if err := s.Out.Answer(a); err != nil || !s.Out.Prose() || !s.Out.Streams.OutTTY {
		return err
	}
	for _, line := range r.lines() {
		if _, err := io.WriteString(s.Out.Streams.Out, term.Clean(line)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// lines say where the prompt would be computed, and who would encode its images.
func (r AskedRoute) lines() []string {
	d := &r.Decision
	why := ""
	if d.PrefillWhy != "" {
		why = " (" + d.PrefillWhy + ")"
	}
	out := []string{fmt.Sprintf("prompt of %s tok = %s, not sent", human.Commas(d.PromptToks), human.Plural(d.Blocks, "block"))}
	switch r.Prefill {
	case "":
		out = append(out, "whether a prefill worker computes it, "+r.Decode+" decides when it comes: disagg.strategy is decode-first")
	case r.Decode:
		out = append(out, "computed by "+r.Decode+" itself"+why)
	default:
		out = append(out, "computed at "+r.Prefill+why)
	}
	for _, x := range r.Images {
		text := fmt.Sprintf("image %s, %s: ", x.Content[:min(len(x.Content), 12)], human.Plural(x.Rows, "row"))
		switch {
		case x.Held:
			text += x.Reader + " has its embeddings"
		case x.Encoder == "":
			text += "nobody can encode it: " + x.Why
		case x.Encoder == x.Reader:
			text += x.Reader + " would encode it itself (" + x.Why + ")"
		case x.Cached:
			text += x.Encoder + " would give its embeddings, which it has (" + x.Why + ")"
		default:
			text += fmt.Sprintf("%s would encode it (%s), with %s in hand", x.Encoder, x.Why, human.Plural(x.InHand, "image"))
		}
		out = append(out, text)
	}
	if r.Prefill == "" && slices.ContainsFunc(r.Images, func(x AskedImage) bool { return x.Encoder != "" && x.Encoder != x.Reader }) {
		out = append(out, "a prefill worker would ask the same encode worker for an image, unless it has much in hand for it")
	}
	return out
}
