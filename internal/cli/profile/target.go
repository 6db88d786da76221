package profile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/profiler"
)

// target is what is measured, and how to ask it.
type target struct {
	session *session.Session
	client  *openai.Client
	ask     bench.Ask
	subject profiler.Subject
	others  func(context.Context) (profiler.Activity, error)
	notes   []string // what is unknown of it
}

// target finds what to measure.
func (o *Options) target(ctx context.Context) (*target, error) {
	if o.URL != "" {
		return o.server(ctx)
	}
	return o.worker(ctx)
}

// server is any server at an address.
func (o *Options) server(ctx context.Context) (*target, error) {
	s := o.Session
	key := o.Key
	if key == "" {
		key = s.Env.Variables().Get("OPENAI_API_KEY")
	}
	c, err := frontend.Find(ctx, s, frontend.Place{Address: o.URL, Key: key}, action)
	if err != nil {
		return nil, err
	}
	c.Limit(o.MaxSeqs)
	m, err := frontend.Model(ctx, s, c, action, o.Model, o.Timeout)
	var said *openai.Error
	if o.Model != "" && errors.As(err, &said) && slices.Contains([]int{404, 405, 501}, said.Status) {
		m, err = openai.Model{ID: o.Model}, nil // a server that lists no models takes any name
	}
	if err != nil {
		return nil, err
	}
	t := &target{session: s, client: c}
	l := profile.Limits{KVBlocks: o.KVTokens / o.BlockSize, BlockSize: o.BlockSize, MaxSeqs: o.MaxSeqs, MaxBatchTokens: o.MaxBatchTokens, MaxContext: o.MaxContext}
	if l.MaxContext == 0 {
		l.MaxContext = max(m.ContextWindow, m.MaxModelLen)
	}
	if l.MaxContext <= 0 || l.MaxContext > maxLimit {
		return nil, &exit.UsageError{Text: "--max-model-len: is needed, since this server does not tell it"}
	}
	if l.MaxBatchTokens == 0 {
		l.MaxBatchTokens = l.MaxContext
		t.notes = append(t.notes, "max_num_batched_tokens was not given: prompts are taken to be computed in one step")
	}
	t.notes = append(t.notes, "whether others used "+c.URL()+" at the same time is not known")
	t.subject = profiler.Subject{Server: c.URL(), Model: m.ID, API: o.API, Devices: o.Devices, Limits: l}
	t.asks(o.API, nil)
	return t, nil
}

// asks makes the function that asks.
func (t *target) asks(api string, pin *openai.Extension) {
	ask := t.client.Chat
	if api == "completions" {
		ask = t.client.Complete
	}
	t.ask = func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
		q.NVExt = pin
		return ask(ctx, q, each)
	}
}

// worker is a worker of the cluster. Requests name it, and it computes their prompts itself.
func (o *Options) worker(ctx context.Context) (*target, error) {
	s := o.Session
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return nil, err
	}
	front, err := frontend.Find(ctx, s, frontend.Place{Key: o.Key}, action)
	if err != nil {
		return nil, err
	}
	w, several, err := o.choose(v, c.Workers(ctx, v))
	if err != nil {
		return nil, err
	}
	st := w.Stats
	l := profile.Limits{KVBlocks: st.KVTotal, BlockSize: st.BlockSize, MaxSeqs: st.MaxSeqs, MaxBatchTokens: st.MaxBatchTokens}
	if l.KVTokens() <= 0 || l.MaxSeqs <= 0 || l.MaxBatchTokens <= 0 {
		return nil, &exit.Failure{Action: action, Err: fmt.Errorf("%s does not tell its limits", w.Name), Tries: limitless(w)}
	}
	front.Limit(l.MaxSeqs)
	m, err := frontend.Model(ctx, s, front, action, w.Model, o.Timeout)
	if err != nil {
		return nil, err
	}
	l.MaxContext = l.KVTokens()
	if m.ContextWindow > 0 {
		l.MaxContext = min(l.MaxContext, m.ContextWindow)
	}
	t := &target{session: s, client: front}
	if several > 1 && o.Worker == "" {
		s.Out.Note("measuring %s, one of %d workers that decode; --worker chooses", w.Name, several)
	}
	t.subject = profiler.Subject{Server: w.Name + " of cluster " + s.Config.Cluster, Model: m.ID, API: o.API, Devices: max(w.TensorParallel, 1), Limits: l}
	t.asks(o.API, &openai.Extension{DecodeWorkerID: uint64(w.InstanceID), Prefill: "local"})
	t.others = func(ctx context.Context) (profiler.Activity, error) { return activity(ctx, c, v, w) }
	for _, other := range c.Workers(ctx, v) {
		if other.Name != w.Name && other.Node == w.Node && other.Device == w.Device && other.Stats.Running > 0 {
			s.Out.Warn("%s computes on the same device: %s shares it, and is slower than alone", other.Name, w.Name)
		}
	}
	return t, nil
}

// limitless says how a worker can be measured that does not tell its limits.
func limitless(w cluster.Worker) []string {
	if w.ServerURL == "" {
		return []string{"dynctl explain worker " + w.Name}
	}
	return []string{"dynctl profile --url " + human.ShellQuote(w.ServerURL) + " --kv-tokens N --max-num-seqs N   for its server"}
}

// choose returns the worker to measure, and how many there are to choose from.
func (o *Options) choose(v client.View, workers []cluster.Worker) (w cluster.Worker, of int, err error) {
	named := v.NameOf(o.Worker)
	var ready []cluster.Worker
	for _, w := range workers {
		if w.Name == named && w.Role != cluster.RoleDecode {
			return w, 0, &exit.Failure{Action: action, Err: fmt.Errorf("%s is a worker for %s; those that decode compute prompts, too", w.Name, w.Role), Tries: []string{"dynctl ps"}}
		}
		if w.Role == cluster.RoleDecode && w.State.Serving() && (o.Model == "" || w.Model == o.Model) {
			ready = append(ready, w)
		}
	}
	if o.Worker == "" && len(ready) > 0 {
		return ready[0], len(ready), nil
	}
	for _, w := range ready {
		if w.Name == named {
			return w, len(ready), nil
		}
	}
	if o.Worker != "" && slices.ContainsFunc(workers, func(w cluster.Worker) bool { return w.Name == named }) {
		return w, 0, &exit.Failure{Action: action, Err: fmt.Errorf("%s does not serve%s", named, forModel(o.Model)), Tries: []string{"dynctl ps"}}
	}
	if o.Worker != "" {
		return w, 0, fleet.NoWorker(o.Session, action, o.Worker, v)
	}
	return w, 0, &exit.Failure{Action: action, Err: errors.New("no worker decodes" + forModel(o.Model)), Tries: []string{"dynctl ps", "dynctl up --decode 1"}}
}

// forModel adds the model that was asked for.
func forModel(model string) string {
	if model == "" {
		return ""
	}
	return " for " + model
}

// activity asks a worker what it does.
func activity(ctx context.Context, c *client.Cluster, v client.View, w cluster.Worker) (profiler.Activity, error) {
	only := v
	only.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i cluster.Instance) bool { return i.InstanceID != w.InstanceID })
	for _, now := range c.Workers(ctx, only) {
		if now.Name != w.Name {
			continue
		}
		if now.InstanceID != w.InstanceID || now.Stale {
			break
		}
		st := now.Stats
		return profiler.Activity{Sequences: st.Running + st.Waiting + st.RemoteWait + st.Moving, Tokens: st.PromptTokensTotal + st.GeneratedTotal}, nil
	}
	if err := context.Cause(ctx); err != nil {
		return profiler.Activity{}, err
	}
	return profiler.Activity{}, fmt.Errorf("%s does not answer any more", strings.TrimSpace(w.Name))
}
