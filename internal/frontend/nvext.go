package frontend

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// nvextParams holds the fields of nvext, Dynamo's extension of OpenAI's requests: the
// workers that a request must use, and the details of its workers that the answer
// reports.
type nvextParams struct {
	decode, prefill *workerRef
	force           string // of the prefill: "", "remote" or "local"
	session         string // its id
	constraints     router.Constraints
	queueing        queueing
	tell            []string
	query           bool // say where the request would run, and do not run it
}

// Values of extra_fields.
const (
	tellWorkers = "worker_id"
	tellTiming  = "timing"
	maxTold     = 16 // entries
)

// queryAnnotation is Dynamo's spelling of query_instance_id: an annotation without a value.
const queryAnnotation = "query_instance_id"

func (p *nvextParams) read(path, key string, raw json.RawMessage) *apiError {
	switch key {
	case "decode_worker_id":
		return workerField(&p.decode)(path, raw)
	case "prefill_worker_id":
		return workerField(&p.prefill)(path, raw)
	case "agent_hints":
		return object(p.queueing.readHints)(path, raw)
	case "session_id":
		if err := text(&p.session)(path, raw); err != nil {
			return err
		}
		return checkSession(path, p.session)
	case "routing_constraints":
		return object(p.readConstraints)(path, raw)
	case "prefill":
		if err := text(&p.force)(path, raw); err != nil {
			return err
		}
		if p.force != metrics.PrefillRemote && p.force != metrics.PrefillLocal {
			return wrongValue(path, "'%s' is not one of 'remote' and 'local'", p.force)
		}
		return nil
	case queryAnnotation:
		return flag(&p.query)(path, raw)
	case "annotations":
		var list []string
		if unmarshalList(raw, &list, maxTold) != nil {
			return wrongType(path, "a list of strings")
		}
		for _, a := range list {
			if strings.TrimSuffix(a, ":") != queryAnnotation {
				return wrongValue(path, "'%s' is not '%s:'", a, queryAnnotation)
			}
			p.query = true
		}
		return nil
	case "extra_fields":
		if unmarshalList(raw, &p.tell, maxTold) != nil {
			return wrongType(path, "a list of strings")
		}
		for _, t := range p.tell {
			if t != tellWorkers && t != tellTiming {
				return wrongValue(path, "'%s' is not one of '%s' and '%s'", t, tellWorkers, tellTiming)
			}
		}
		return nil
	}
	return invalid(path, "Unknown parameter: '%s'.", path).withCode("unknown_parameter")
}

// resolve finds the ids of the requested workers.
func (p *nvextParams) resolve(f *Frontend) {
	p.decode.resolve(f.workers.All())
	p.prefill.resolve(f.prefills.All())
}

// bind checks that the requested workers serve the model.
func (p *nvextParams) bind(m *servedModel) *apiError {
	if p.decode != nil && !m.has(p.decode.id) {
		return wrongValue("nvext.decode_worker_id", "no decode worker %s serves this model", p.decode.text)
	}
	if !m.canDecode(p.constraints) {
		return unavailable("No worker that serves this model has all taints of '"+requiredTaints+"'.", retryLater).withCode("no_matching_worker")
	}
	if p.prefill == nil {
		return nil
	}
	if _, ok := m.prefills[p.prefill.id]; !ok {
		return wrongValue("nvext.prefill_worker_id", "no prefill worker %s serves this model", p.prefill.text)
	}
	if p.force == metrics.PrefillLocal {
		return wrongValue("nvext.prefill", "'nvext.prefill_worker_id' has no use with 'local'")
	}
	return nil
}

// apply makes a generation use the requested workers. Only a frontend can choose the
// prefill worker by name or taint, so such a request is disaggregated by the frontend,
// whatever the strategy is.
func (p *nvextParams) apply(g *generation) {
	g.req.Disagg.Force, g.session = p.force, p.session
	g.constraints, g.req.RequiredTaints = p.constraints, p.constraints.Required
	if len(p.constraints.Required) > 0 { // the prefill queue would ignore them
		g.strategy = protocol.StrategyPrefillFirst
	}
	if p.decode != nil {
		g.only.decode = p.decode.id
	}
	if p.prefill != nil {
		g.only.prefill = p.prefill.id
		g.strategy, g.req.Disagg.Force = protocol.StrategyPrefillFirst, metrics.PrefillRemote
	}
}

// pinned holds the workers that a request must use; zero leaves the choice to the router.
type pinned struct{ decode, prefill cluster.InstanceID }

// whyNotNamed excludes workers from a request that names another one.
const whyNotNamed = "the request names another worker"

// extension is the field nvext of an answer.
type extension struct {
	Workers *ranOn      `json:"worker_id,omitempty"`
	Timing  *timingInfo `json:"timing,omitempty"`
	// TokenIDs are those of the prompt, in the answer to query_instance_id.
	TokenIDs []uint32 `json:"token_ids,omitempty"`
	// Route is the decision as it would be made, and Images are those of the prompt, in the
	// answer to query_instance_id.
	Route  *cluster.RouterDecision `json:"route,omitempty"`
	Images []queriedImage          `json:"images,omitempty"`
}

// queriedImage names an image of a prompt.
type queriedImage struct {
	Content string `json:"content"` // SHA-256 of the file, in hexadecimal
	Key     string `json:"key"`     // of its embeddings
	Rows    int    `json:"rows"`
}

// ranOn names the workers that an answer came from, by Dynamo's ids and by name.
type ranOn struct {
	// PrefillID is zero for a local prefill. In the answer to query_instance_id it then is
	// the decode worker, and zero if the decode worker decides.
	PrefillID cluster.InstanceID `json:"prefill_worker_id,omitempty"`
	DecodeID  cluster.InstanceID `json:"decode_worker_id"`
	// PrefillHex and DecodeHex are the same ids for clients that cannot keep such numbers.
	PrefillHex string `json:"prefill_worker_hex,omitempty"`
	DecodeHex  string `json:"decode_worker_hex"`
	Prefill    string `json:"prefill_worker,omitempty"`
	Decode     string `json:"decode_worker"`
}

// newRanOn returns what is known of a decode worker.
func newRanOn(id cluster.InstanceID, name string) *ranOn {
	return &ranOn{DecodeID: id, DecodeHex: hexID(id), Decode: name}
}

func (r *ranOn) prefilled(id cluster.InstanceID, name string) {
	r.PrefillID, r.PrefillHex, r.Prefill = id, hexID(id), name
}

type timingInfo struct {
	// Prefill is remote or local. PrefillWhy is the reason for a local one. PrefillWay is
	// how the KV of a remote one was transferred.
	Prefill    string   `json:"prefill"`
	PrefillWay string   `json:"prefill_way,omitempty"`
	PrefillWhy string   `json:"prefill_why,omitempty"`
	QueueMS    float64  `json:"queue_ms"`   // waiting for admission at the decode worker
	PrefillMS  float64  `json:"prefill_ms"` // from there to the first token
	TTFTMS     *float64 `json:"ttft_ms"`    // from the arrival of the request; null without a token
	TotalMS    float64  `json:"total_ms"`
	// DecodeMS is the time from the first token to the last one at the workers, added up over
	// decode workers; absent if none told it.
	DecodeMS float64 `json:"decode_ms,omitempty"`
	Moves    int     `json:"moves"` // to another worker, computed again or handed over
	// KV is nil if no KV came from a prefill worker.
	KV *kvTiming `json:"kv_transfer,omitempty"`
	// Images is nil for a prompt of text.
	Images *imageTiming `json:"images,omitempty"`
}

// kvTiming says how the KV of a prompt came to the decode worker.
type kvTiming struct {
	MoveMS    float64 `json:"move_ms"`    // in transfers, some of it while the prompt was computed
	ExposedMS float64 `json:"exposed_ms"` // from the end of the computation until all was there
	Bytes     int64   `json:"bytes"`
	Transport string  `json:"transport,omitempty"`
}

func newKVTiming(m protocol.KVMoved) *kvTiming {
	if m == (protocol.KVMoved{}) {
		return nil
	}
	return &kvTiming{millis(time.Duration(m.NS)), millis(time.Duration(m.ExposedNS)), m.Bytes, m.Transport}
}

// imageTiming says how the embeddings of a prompt's images came to the worker that computed it.
type imageTiming struct {
	Count     int      `json:"count"`
	Cached    int      `json:"cached"`     // of these, how many nobody had to encode
	EncodeMS  float64  `json:"encode_ms"`  // until all were there, their way included
	MoveMS    float64  `json:"move_ms"`    // of that, reading them over NIXL, added up
	ExposedMS float64  `json:"exposed_ms"` // from when the last one was encoded until all were there
	Bytes     int64    `json:"bytes"`      // that were read
	EncodedBy []string `json:"encoded_by,omitempty"`
	Why       string   `json:"why,omitempty"` // why that worker encoded itself
}

func newImageTiming(e protocol.Encoded) *imageTiming {
	if e.Parts == 0 {
		return nil
	}
	return &imageTiming{
		Count: e.Parts, Cached: e.Cached, EncodeMS: millis(time.Duration(e.NS)), MoveMS: millis(time.Duration(e.MoveNS)), ExposedMS: millis(time.Duration(e.ExposedNS)), Bytes: e.Bytes, EncodedBy: e.By, Why: e.Why,
	}
}

// extension describes how the first choice was computed, once it is complete. It returns
// nil if the client has not asked for it.
func (j *job) extension(p *nvextParams) *extension {
	if len(p.tell) == 0 || len(j.choices) == 0 {
		return nil
	}
	g, e := j.choices[0].gen, &extension{}
	t := g.timing
	remote := t.Prefill != "" && t.Prefill != metrics.PrefillLocal
	if slices.Contains(p.tell, tellWorkers) {
		e.Workers = newRanOn(g.at.InstanceID, g.at.Worker)
		if remote {
			e.Workers.Prefill = t.Prefill
			for _, i := range j.f.prefills.Instances() {
				if i.Worker == t.Prefill {
					e.Workers.prefilled(i.InstanceID, i.Worker)
				}
			}
		}
	}
	if slices.Contains(p.tell, tellTiming) {
		j.mu.Lock()
		ttft := j.ttft
		j.mu.Unlock()
		e.Timing = &timingInfo{
			Prefill: metrics.PrefillLocal, PrefillWhy: t.PrefillWhy, PrefillWay: string(t.PrefillWay),
			QueueMS: millis(time.Duration(t.QueueNS)), PrefillMS: millis(time.Duration(t.PrefillNS)), TotalMS: millis(time.Since(j.arrived)), Moves: int(g.moves.Load()) + g.handovers,
			DecodeMS: millis(time.Duration(g.decodeNS)), KV: newKVTiming(t.KV), Images: newImageTiming(t.Encoded),
		}
		if remote {
			e.Timing.Prefill = metrics.PrefillRemote
		}
		if ttft > 0 {
			ms := millis(ttft)
			e.Timing.TTFTMS = &ms
		}
	}
	return e
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
