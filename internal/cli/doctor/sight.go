package doctor

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

const (
	// sightTries limits the pictures about which a worker is asked, for each encode worker:
	// the content of an image chooses who encodes it.
	sightTries = 8
	// sightWrong is how many wrong answers prove that embeddings arrive damaged: a small
	// model errs now and then, and one right answer proves that they arrive whole.
	sightWrong = 4
)

// drawDoor draws a picture that nobody has in a cache.
func drawDoor() drawn.Picture {
	return drawn.Draw(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), drawn.Code) // #nosec G404 -- questions, not secrets
}

// seen is what the answers say about the embeddings of one encode worker.
type seen struct {
	right, wrong int
	last         judge.Finding // numbers of the last answer
}

// sights asks every worker that computes prompts about drawn pictures, until each encode
// worker has encoded some of them. It returns nothing without encode workers.
func (r recallCheck) sights(ctx context.Context, workers []cluster.Worker) []judge.Finding {
	serving := func(role cluster.Role) (out []cluster.Worker) {
		for _, w := range workers {
			if w.Role == role && w.State.Serving() {
				out = append(out, w)
			}
		}
		return out
	}
	encode, prefill, decode := serving(cluster.RoleEncode), serving(cluster.RolePrefill), serving(cluster.RoleDecode)
	if len(encode) == 0 || len(decode) == 0 {
		return nil
	}
	found := make([][]judge.Finding, len(decode))
	r.each(decode, func(i int, d cluster.Worker) {
		found[i] = r.looks(ctx, encode, d, nil)
	})
	for i := range prefill { // one decode worker is enough: the prefill worker reads the embeddings
		found = append(found, r.looks(ctx, encode, decode[i%len(decode)], &prefill[i]))
	}
	return slices.Concat(found...)
}

// looks asks about pictures that a prefill worker computes, or the decode worker itself.
func (r recallCheck) looks(ctx context.Context, encode []cluster.Worker, d cluster.Worker, p *cluster.Worker) (out []judge.Finding) {
	want := openai.Extension{DecodeWorkerID: uint64(d.InstanceID), Prefill: "local", ExtraFields: openai.TellAll()}
	reader := d.Name
	if p != nil {
		want.PrefillWorkerID, want.Prefill, reader = uint64(p.InstanceID), "remote", p.Name
	}
	begin := time.Now()
	by, why := map[string]*seen{}, ""
	settled := func(e cluster.Worker) bool {
		s := by[e.Name]
		return s != nil && (s.right > 0 || s.wrong >= sightWrong)
	}
	for range sightTries * len(encode) {
		picture := r.draw()
		ask, _ := picture.Ask(string(drawn.Code))
		a, err := r.put(ctx, openai.Request{
			Messages: []openai.Message{{Role: "user", Content: ask.Text()}}, Images: []string{picture.URL()}, NVExt: &want,
		})
		if err != nil {
			f := judge.NoAnswer(err)
			f.Name, f.Group = "sight "+reader, groupRecall
			return append(out, f)
		}
		if a.Ran == nil || a.Ran.Timing == nil || a.Ran.Timing.Images == nil {
			f := judge.Skipped("the frontend does not report which workers encoded")
			f.Name, f.Group = "sight "+reader, groupRecall
			return append(out, f)
		}
		images := a.Ran.Timing.Images
		if len(images.EncodedBy) != 1 {
			why = images.Why
			continue
		}
		s := by[images.EncodedBy[0]]
		if s == nil {
			s = &seen{}
			by[images.EncodedBy[0]] = s
		}
		if ask.Right(a.Text) {
			s.right++
		} else {
			s.wrong++
		}
		s.last = judge.Finding{}.With("question", ask.Text()).With("want", ask.Key).With("answer", a.Text).With("timing", a.Ran.Timing)
		if !slices.ContainsFunc(encode, func(e cluster.Worker) bool { return !settled(e) }) {
			break
		}
	}
	for _, e := range encode {
		s := by[e.Name]
		if s == nil {
			s = &seen{}
		}
		f := judge.Seen{Encode: e.Name, Reader: reader, Right: s.right, Wrong: s.wrong, Why: why}.Judge()
		f.Name, f.Group, f.Data, f.TookMS = strings.Join([]string{"sight", e.Name, reader}, " "), groupRecall, s.last.Data, human.Milliseconds(time.Since(begin))
		out = append(out, f)
	}
	return out
}
