package frontend

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
)

// answerer writes the answer of one endpoint, as a stream of events or as a whole.
type answerer interface {
	events(delta) []any
	usageEvent(usage) any
	gather(delta)
	whole(usage) any
}

// serve takes one request through its way: admission, validation, preparation by
// the endpoint, generation, answer.
func (f *Frontend) serve(w http.ResponseWriter, r *http.Request, endpoint string, fs fields, p *params,
	prepare func(*servedModel) (answerer, []*choice, []int, *apiError)) {
	arrived := time.Now()
	leave, refusal := f.admit()
	if refusal != nil {
		refusal.write(w)
		return
	}
	defer leave()

	body, bad := readBody(w, r, f.cfg.BodyLimit)
	if bad == nil {
		bad = fs.read(body)
	}
	if bad == nil {
		bad = p.check()
	}
	j := &job{f: f, arrived: arrived, met: f.metrics.Begin(metrics.ModelLabel(p.model, f.registry.known), endpoint, p.stream)}
	if bad == nil {
		j.m, bad = f.model(p.model)
	}
	var a answerer
	if bad == nil {
		preprocessed := f.metrics.EnterStage(metrics.StagePreprocess)
		a, j.choices, j.prompts, bad = prepare(j.m)
		preprocessed(time.Since(arrived))
	}
	if bad != nil {
		bad.write(w)
		j.end(bad)
		return
	}
	id := w.Header().Get("X-Request-Id")
	for i, c := range j.choices {
		c.req.RequestID, c.req.ReceivedAt = id, arrived
		if len(j.choices) > 1 {
			c.req.RequestID = id + "." + strconv.Itoa(i)
		}
	}
	ctx, cancel := f.limited(r.Context())
	defer cancel()
	var err error
	if p.stream {
		err = j.stream(ctx, w, a, p.includeUsage)
	} else {
		err = j.answer(ctx, w, a)
	}
	j.end(err)
	if err != nil && !errors.Is(err, context.Canceled) {
		f.log.Warn("request failed", "request", id, "error", err)
	}
}

// stream answers with server-sent events.
func (j *job) stream(ctx context.Context, w http.ResponseWriter, a answerer, includeUsage bool) error {
	s := newSSE(w)
	err := j.run(ctx, func(d delta) error {
		for _, e := range a.events(d) {
			if err := s.send(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && includeUsage {
		err = s.send(a.usageEvent(j.usage()))
	}
	s.end(err)
	return err
}

// answer collects everything and answers at once.
func (j *job) answer(ctx context.Context, w http.ResponseWriter, a answerer) error {
	err := j.run(ctx, func(d delta) error { a.gather(d); return nil })
	if err != nil {
		asAPIError(err).write(w)
		return err
	}
	writeJSON(w, http.StatusOK, a.whole(j.usage()))
	return nil
}

// makeChoices makes n choices for each prompt.
func (p *params) makeChoices(m *servedModel, prompts [][]uint32, fallback int) ([]*choice, *apiError) {
	var out []*choice
	for i, prompt := range prompts {
		for range p.choices() {
			req, err := p.request(m, append([]uint32{}, prompt...), len(out), fallback)
			if err != nil {
				return nil, err
			}
			out = append(out, &choice{
				index: len(out), prompt: i, req: req,
				detok: m.proc.NewDetokenizer(p.stop, p.includeStop, p.skipSpecial),
			})
		}
	}
	return out, nil
}

func itoa(i int) string { return strconv.Itoa(i) }
