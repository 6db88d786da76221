package doctor

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/recall"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

const groupRecall = "model"

const (
	// recallSentences make a prompt of several KV blocks.
	recallSentences = 24
	// recallTries limits how often a question is asked before an answer counts as wrong: a
	// small model errs now and then, and one right answer is proof enough, since four
	// digits are not guessed.
	recallTries = 4
	// recallTokens limits an answer, in tokens.
	recallTokens = 256
	// recallAtOnce limits the decode workers that are asked concurrently.
	recallAtOnce = 4
)

// recallCheck proves the KV transfers of a cluster end to end: it asks for facts that lie
// in blocks which another worker computed.
type recallCheck struct {
	timeout time.Duration // of one answer
	model   string
	c       *openai.Client
	// paths are the NIXL paths that workers of a role know, by worker.
	paths func(context.Context, cluster.Role) map[string][]cluster.Path
	draw  func() drawn.Picture // of a door
}

// recallFindings checks the model that is served, when that is the one that is wanted.
func (o *Options) recallFindings(ctx context.Context, cl *client.Cluster, v client.View) []judge.Finding {
	one := func(f judge.Finding) []judge.Finding {
		f.Name, f.Group = "recall", groupRecall
		return []judge.Finding{f}
	}
	urls := v.Frontends()
	name := o.ModelCheck
	if v.Topology != nil && name == cluster.BuiltinModelName && v.Topology.Model.Path == cluster.BuiltinVisionName {
		name = v.Topology.Model.Name // the other built-in model answers, too
	}
	switch {
	case v.Topology == nil || v.Topology.Workers() == 0:
		return one(judge.Skipped("no model is declared"))
	case v.Topology.Model.Name != name:
		f := judge.Skipped("the cluster serves %s, not %s", v.Topology.Model.Name, name)
		f.Fix = "--model-check=" + human.ShellQuote(v.Topology.Model.Name) + ", if that model answers questions about its prompt"
		return one(f)
	case len(urls) == 0:
		return one(judge.Skipped("no node has an HTTP frontend"))
	}
	c, err := frontend.New(o.Session, urls[0])
	if err != nil {
		return one(judge.Bad("dynctl ps --nodes -o wide", "%v", err))
	}
	r := recallCheck{timeout: o.Timeout, model: name, c: c, draw: drawDoor, paths: func(ctx context.Context, role cluster.Role) map[string][]cluster.Path {
		paths, _ := cl.Paths(ctx, v, role) // who does not tell shows without its transport
		return paths
	}}
	workers := slices.DeleteFunc(v.Workers(), func(w cluster.Worker) bool { return w.Model != name }) // others have other models
	return append(r.run(ctx, workers), r.sights(ctx, workers)...)
}

// recallResult is the result of the questions to one worker or pair of workers.
type recallResult struct {
	judge.Finding
	right  bool
	answer openai.Answer
}

// judged takes over a judgement; the numbers stay.
func (x *recallResult) judged(f judge.Finding) { x.Status, x.Found, x.Fix = f.Status, f.Found, f.Fix }

// run asks every decode worker without a transfer, with one by the cluster's own choice,
// and with one from each prefill worker.
func (r recallCheck) run(ctx context.Context, workers []cluster.Worker) []judge.Finding {
	var prefill, decode []cluster.Worker
	for _, w := range workers {
		switch {
		case !w.State.Serving():
		case w.Role == cluster.RolePrefill:
			prefill = append(prefill, w)
		case w.Role == cluster.RoleDecode:
			decode = append(decode, w)
		}
	}
	if len(decode) == 0 {
		f := judge.Skipped("no decode worker serves")
		f.Name, f.Group = "recall", groupRecall
		return []judge.Finding{f}
	}
	control := make([][]recallResult, len(decode))
	r.each(decode, func(i int, d cluster.Worker) {
		control[i] = []recallResult{r.local(ctx, d)}
	})
	able := false
	for _, c := range control {
		able = able || c[0].right
	}
	if !able {
		return r.unable(ctx, control)
	}
	moved := make([][]recallResult, len(decode))
	r.each(decode, func(i int, d cluster.Worker) {
		if !control[i][0].right || len(prefill) == 0 {
			return // what it answers after a transfer says nothing about the transfer
		}
		moved[i] = append(moved[i], r.transferred(ctx, d, nil))
		for _, p := range prefill {
			moved[i] = append(moved[i], r.transferred(ctx, d, &p))
		}
	})
	r.nameTransports(ctx, moved)
	var out []judge.Finding
	for i := range decode {
		for _, x := range append(control[i], moved[i]...) {
			out = append(out, x.Finding)
		}
	}
	if len(prefill) == 0 {
		f := judge.Skipped("no prefill worker serves: nothing is transferred")
		f.Name, f.Group = "recall-remote", groupRecall
		out = append(out, f)
	}
	return out
}

// each calls f for all workers, some at a time.
func (r recallCheck) each(workers []cluster.Worker, f func(int, cluster.Worker)) {
	var wg sync.WaitGroup
	sem := make(chan struct{}, recallAtOnce)
	for i, w := range workers {
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			f(i, w)
		})
	}
	wg.Wait()
}

// unable returns the finding when no worker answers even without a transfer: the model cannot,
// unless there was no answer at all.
func (r recallCheck) unable(ctx context.Context, control [][]recallResult) []judge.Finding {
	var out []judge.Finding
	for _, c := range control {
		f := c[0].Finding
		if f.Data["answer"] != nil && ctx.Err() == nil {
			data, took := f.Data, f.TookMS
			name := f.Name
			f = judge.Skipped("%s cannot show it: it does not answer a question about its prompt without a transfer either", r.model)
			f.Name, f.Group, f.Data, f.TookMS = name, groupRecall, data, took
			f.Fix = "dynctl up with the built-in model, or --model-check=NAME with one that follows instructions"
		}
		out = append(out, f)
	}
	return out
}

// local asks a decode worker that computes everything itself.
func (r recallCheck) local(ctx context.Context, d cluster.Worker) recallResult {
	x := r.ask(ctx, openai.Extension{DecodeWorkerID: uint64(d.InstanceID), Prefill: "local"})
	x.Name = "recall-local " + d.Name
	if x.Status == "" {
		x.judged(judge.LocalRecall(d.Name, x.right))
	}
	return x
}

// transferred asks for facts that a prefill worker has read, one of the cluster's choice
// or a given one.
func (r recallCheck) transferred(ctx context.Context, d cluster.Worker, p *cluster.Worker) recallResult {
	want := openai.Extension{DecodeWorkerID: uint64(d.InstanceID), Prefill: "remote"}
	name, wanted := "recall "+d.Name, ""
	if p != nil {
		want.PrefillWorkerID = uint64(p.InstanceID)
		name, wanted = "recall "+p.Name+" "+d.Name, p.Name
	}
	x := r.ask(ctx, want)
	x.Name = name
	if x.Status == "" {
		ran := x.answer.Ran
		x.judged(judge.Transferred{Decode: d.Name, Wanted: wanted, Prefill: ran.Workers.Prefill, Why: ran.Timing.PrefillWhy, Right: x.right}.Judge())
	}
	return x
}

// ask asks until an answer is right. The status of what it returns is empty when there
// was an answer, right or wrong, which tells where it ran.
func (r recallCheck) ask(ctx context.Context, want openai.Extension) recallResult {
	begin := time.Now()
	var x recallResult
	want.ExtraFields = openai.TellAll()
	for try := range recallTries {
		p := recall.Draw(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), recallSentences, rand.Float64()) // #nosec G404 -- questions, not secrets
		a, err := r.question(ctx, p, want)
		switch {
		case err != nil:
			x.Finding = judge.NoAnswer(err)
		case a.Ran == nil || a.Ran.Workers == nil || a.Ran.Timing == nil:
			x.Finding = judge.Skipped("the frontend does not report which workers answered")
			x.Fix = "dynctl down, then up, with dynctl and dynamod of one release"
		default:
			x.answer, x.right = a, p.Right(a.Text)
			x.Finding = judge.Finding{}.With("tries", try+1).With("question", p.Question).With("want", p.Answer).With("answer", a.Text).
				With("workers", a.Ran.Workers).With("timing", a.Ran.Timing)
		}
		if x.Status != "" || x.right {
			break
		}
	}
	x.Group, x.TookMS = groupRecall, human.Milliseconds(time.Since(begin))
	return x
}

func (r recallCheck) question(ctx context.Context, p recall.Probe, want openai.Extension) (openai.Answer, error) {
	return r.put(ctx, openai.Request{Messages: []openai.Message{{Role: "user", Content: p.Prompt()}}, NVExt: &want})
}

// put puts a question to the model.
func (r recallCheck) put(ctx context.Context, q openai.Request) (openai.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	cold := 0.0
	q.Model, q.MaxTokens, q.Temperature = r.model, recallTokens, &cold
	return r.c.Chat(ctx, q, func(openai.Delta) error { return nil })
}

// nameTransports completes findings by how the blocks came: the workers know now.
func (r recallCheck) nameTransports(ctx context.Context, results [][]recallResult) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	over := map[[2]string]string{}
	for _, role := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode} {
		for _, paths := range r.paths(ctx, role) {
			for _, p := range paths {
				over[[2]string{p.From, p.To}] = p.Transport
			}
		}
	}
	for _, list := range results {
		for i := range list {
			x := &list[i]
			if x.answer.Ran == nil || x.answer.Ran.Workers.Prefill == "" {
				continue
			}
			ran := x.answer.Ran
			// The decode worker pulls KV, else the prefill worker pushes it.
			from, to := ran.Workers.Prefill, ran.Workers.Decode
			if ran.Timing.PrefillWay == "pull" {
				from, to = to, from
			}
			transport := over[[2]string{from, to}]
			parts := []string{"way " + ran.Timing.PrefillWay, "ttft " + human.Millis(x.answer.TTFT)}
			if transport != "" {
				parts = append([]string{"over " + transport}, parts...)
			}
			x.Found += " (" + strings.Join(parts, ", ") + ")"
			x.Finding = x.With("transport", transport).With("ttft_ms", human.Milliseconds(x.answer.TTFT)).With("total_ms", human.Milliseconds(x.answer.Took))
		}
	}
}
