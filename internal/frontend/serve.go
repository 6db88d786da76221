package frontend

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/metrics"
)

// request is the body of a generating endpoint, with the differences between chat and
// text completions. Its methods are called in this order.
type request interface {
	// fields returns the endpoint's fields; shared returns those that all endpoints have.
	fields() fields
	shared() *params
	// check validates fields that depend on each other.
	check() *apiError
	// prompts returns the tokens of each prompt. promptField names their field.
	prompts(context.Context, *servedModel) ([][]uint32, error)
	promptField() string
	// defaultTokens returns how many tokens to generate if the client sets no limit, or 0
	// for as many as the context has room for.
	defaultTokens() int
	// forget drops references to the body, which is not needed after prompts.
	forget()
	answer(m *servedModel, created int64, choices []*choice) answerer
}

// illustrated is a request that may have images.
type illustrated interface {
	hasImages() bool
	// load gets the images before prompts; free lets go of them when the request has ended.
	load(ctx context.Context, f *Frontend, m *servedModel, tenant string) *apiError
	free()
}

// loadImages gets the images of a request. They may come from far: if it can, the request
// gives its turn back meanwhile.
func (j *job) loadImages(ctx context.Context, q illustrated, m *servedModel, leave func(), turn func() (func(), *apiError)) (func(), *apiError) {
	if turn != nil {
		leave()
		leave = func() {}
	}
	if bad := q.load(ctx, j.f, m, j.tenant); bad != nil || turn == nil {
		return leave, bad
	}
	again, late := turn()
	if late != nil {
		return leave, late
	}
	return again, nil
}

// answerer writes the answer of one endpoint, as events or as a whole.
type answerer interface {
	// appendDelta appends the events of one delta, each ending in an empty line.
	appendDelta(dst []byte, d delta) []byte
	// lastEvent returns the event about the whole answer, with those arguments that are
	// not nil.
	lastEvent(*usage, *extension) []byte
	whole(choices []*choice, u usage, e *extension) any
}

// errRequestTimeout ends requests that exceed the frontend's time limit.
var errRequestTimeout = errors.New("the request took longer than this server allows")

// generating returns the handler of an endpoint: admission, checks, preparation,
// generation, answer.
func (f *Frontend) generating(endpoint string, newRequest func() request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		if !f.gate.enter() {
			shuttingDown().write(w)
			return
		}
		defer f.gate.leave()
		f.stats.begun()
		q := newRequest()
		p := q.shared()
		fs := q.fields()
		tenant := f.tenants.of(r)
		body, release, bad := f.readBody(w, r, tenant)
		defer release()
		ctx, client := watch(r)
		defer client.leave()
		ctx, cancel := f.limited(ctx)
		defer cancel()
		leave := func() {}
		defer func() { leave() }()
		turn := func() (func(), *apiError) { return f.intake.turn(ctx, tenant, len(body), f.limits.intake) }
		if len(body) > smallBody {
			turn = nil
		}
		var routing routeAsk
		if bad == nil {
			routing, bad = readRouteAsk(r.Header)
		}
		if bad == nil {
			if got, late := f.intake.turn(ctx, tenant, len(body), f.limits.intake); late != nil {
				bad = late
			} else {
				leave = got
			}
		}
		read := fs.read
		if bad == nil {
			if fw := f.forwards(endpoint, body); fw != nil {
				q, p, read = fw, fw.shared(), fw.read
			}
		}
		if bad == nil {
			if bad = read(body); bad == nil {
				bad = p.nvext.readHeaders(r.Header)
			}
			if bad == nil {
				bad = q.check()
			}
		}
		j := &job{
			f: f, id: workID(w, r), endpoint: endpoint, stream: p.stream,
			model: metrics.ModelLabel(p.model, f.registry.known), arrived: arrived, tenant: tenant, routing: routing,
		}
		f.stats.asked(f.registry.base(j.model))
		j.met = f.metrics.Begin(j.model, endpoint, p.stream)
		err := error(internalError("Internal server error.")) // unless a panic unwinds
		defer func() { j.end(err) }()
		if i, ok := q.(illustrated); ok {
			defer i.free()
		}
		if bad != nil {
			bad.write(w)
			err = bad
			return
		}
		a, err2 := j.prepare(ctx, q, leave, turn)
		q.forget()
		release()
		switch {
		case err2 != nil:
			asAPIError(err2).write(w)
			err = err2
		case p.nvext.query:
			err = j.query(w, a, p)
		case p.stream:
			err = j.streamed(ctx, w, r, client.half, a, p)
		default:
			err = j.whole(ctx, w, r, client.half, a, p)
		}
	}
}

// limited bounds the duration of a request.
func (f *Frontend) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.cfg.RequestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.cfg.RequestTimeout, errRequestTimeout)
}

// prepare finds the model, makes the prompts and the choices that generate from them. It
// calls leave when the prompts are made: later steps are short or have their own limits. If
// it has to wait for a worker of the model, it takes another turn; without turn it does not.
func (j *job) prepare(ctx context.Context, q request, leave func(), turn func() (func(), *apiError)) (answerer, error) {
	defer func() { leave() }()
	defer func(begin time.Time, leave func(time.Duration)) { leave(time.Since(begin)) }(time.Now(), j.f.metrics.EnterStage(metrics.StagePreprocess))
	p := q.shared()
	m, leave, bad := j.f.awaitModel(ctx, p.model, leave, turn)
	if bad != nil {
		return nil, bad
	}
	if fw, ok := q.(*forward); ok {
		if !m.text { // since it was read
			return nil, notServed(m.name)
		}
		return j.prepareForward(fw, m)
	}
	if m.text {
		return nil, notServed(m.name) // it was read for another kind of model
	}
	if i, ok := q.(illustrated); ok && i.hasImages() {
		if leave, bad = j.loadImages(ctx, i, m, leave, turn); bad != nil {
			return nil, bad
		}
	}
	begin := time.Now()
	prompts, err := q.prompts(ctx, m)
	if err != nil {
		return nil, err
	}
	j.f.metrics.Tokenizer(metrics.OperationTokenize, time.Since(begin))
	leave() // constraints have a queue of their own
	for i := range p.media {
		j.images += p.media[i].Rows
	}
	p.nvext.resolve(j.f)
	if bad := p.bind(ctx, m); bad != nil {
		return nil, bad
	}
	if bad := j.checkDirect(&p.nvext); bad != nil {
		return nil, bad
	}
	stops := chat.NewStops(p.stop)
	for i, prompt := range prompts {
		budget, bad := p.budget(m, len(prompt), q.promptField(), q.defaultTokens())
		if bad != nil {
			return nil, bad
		}
		j.prompts = append(j.prompts, len(prompt))
		for range p.choices() {
			c := &choice{index: len(j.choices), prompt: i}
			c.detok = m.proc.NewDetokenizer(stops, p.includeStop, p.skipSpecial)
			c.detok.SetMinTokens(p.minimum())
			if p.logprobs != nil {
				c.probs = &logprobTrack{}
				if p.promptLogprobs {
					c.probs.prompt, c.probs.proc = prompt, m.proc
				}
			}
			c.gen = j.f.newGeneration(m, p.request(m, prompt, budget, c.index), j.met)
			c.gen.req.ReceivedAt, c.gen.req.Tenant = j.arrived, j.tenant
			c.gen.routing = j.routing
			p.nvext.apply(c.gen)
			j.choices = append(j.choices, c)
		}
	}
	for _, c := range j.choices {
		c.gen.id = j.id
		if len(j.choices) > 1 {
			c.gen.id += "." + strconv.Itoa(c.index)
		}
	}
	if p.nvext.query {
		return q.answer(m, time.Now().Unix(), nil), nil
	}
	j.queueing = p.nvext.queueing
	if err := j.admit(m); err != nil {
		return nil, err
	}
	return q.answer(m, time.Now().Unix(), j.choices), nil
}

// streamed answers with server-sent events. half is closed when the handler must probe
// whether the client is still connected.
func (j *job) streamed(ctx context.Context, w http.ResponseWriter, r *http.Request, half <-chan struct{}, a answerer, p *params) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := newSSE(w, j.f.limits.write)
	s.begin = j.tellRoute
	aside := newAside(func(over <-chan struct{}) {
		if gone := s.attend(r, half, over, j.f.limits.keepAlive); gone != nil {
			if s.failed() == nil { // the client is there, and reads nothing
				j.f.log.Info("client does not read its stream, which ends", "request", j.id, "model", j.model, "waited", j.f.limits.write)
			}
			cancel(gone)
		}
	})
	err := j.generateAll(ctx, cancel, sink{func(d delta) error { return s.put(ctx, a, d) }, s.flush})
	aside.end()
	if gone := s.failed(); gone != nil {
		return cmp.Or(err, gone)
	}
	var last []byte
	if err == nil {
		last = j.lastEvent(a, p)
	}
	return errors.Join(err, s.end(last, err))
}

// aside is a goroutine beside that of a handler.
type aside struct {
	over  chan struct{}
	ended sync.WaitGroup
}

// newAside runs f, which must return soon after over is closed.
func newAside(f func(over <-chan struct{})) *aside {
	a := &aside{over: make(chan struct{})}
	a.ended.Go(func() { f(a.over) })
	return a
}

// end closes over and waits for f.
func (a *aside) end() {
	close(a.over)
	a.ended.Wait()
}

// lastEvent returns the event about the whole answer, or nil if the client does not want
// one.
func (j *job) lastEvent(a answerer, p *params) []byte {
	e := j.extension(&p.nvext)
	var u *usage
	if p.includeUsage {
		all := j.usage()
		u = &all
	}
	if u == nil && e == nil {
		return nil
	}
	return a.lastEvent(u, e)
}

// whole collects everything and answers at once. half is as for streamed.
func (j *job) whole(ctx context.Context, w http.ResponseWriter, r *http.Request, half <-chan struct{}, a answerer, p *params) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	aside := newAside(func(over <-chan struct{}) {
		select {
		case <-half:
			probe(w, r)
		case <-over:
		}
	})
	err := j.generateAll(ctx, cancel, sink{put: func(d delta) error {
		j.choices[d.index].collect(d)
		return nil
	}})
	aside.end()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(j.f.limits.write)) // the server takes it back
	j.tellRoute(w.Header())
	if err != nil {
		asAPIError(err).write(w)
		return err
	}
	writeJSON(w, http.StatusOK, a.whole(j.choices, j.usage(), j.extension(&p.nvext)))
	return nil
}
