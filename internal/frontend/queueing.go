package frontend

import (
	"encoding/json"
	"errors"
	"time"
)

// QueueShortest is a value of Settings.QueuePolicy, Dynamo's "weighted shortest prompt
// first". Any other value serves in order of arrival.
const QueueShortest = "wspt"

const (
	// maxPriority is the largest priority, and its negation the smallest. Larger ones count
	// as that.
	maxPriority = 8
	// aheadPerClass is how much earlier a request seems to have come for each class of
	// priority. A request therefore waits at most 16 times that for later ones of higher
	// classes.
	aheadPerClass = 10 * time.Second
	// behindPerToken is how much later a request seems to have come for each uncached token
	// of its prompts, with QueueShortest. It bounds how long shorter ones overtake it.
	behindPerToken = time.Millisecond
)

// queueing is what a request says about its place among the waiting requests of its
// client.
type queueing struct {
	priority, strict *int64        // of nvext.agent_hints; strict wins
	place            *int64        // vLLM's priority, which is less for what comes first; used without the former
	deadline         time.Duration // after the arrival; 0 for none
}

// errDeadline ends requests that wait for a worker beyond their deadline.
var errDeadline = errors.New("the deadline of the request has passed while it waited")

// readHints reads the fields of nvext.agent_hints.
func (q *queueing) readHints(path, key string, raw json.RawMessage) *apiError {
	switch key {
	case "priority":
		return q.readPriority(path, raw)
	case "strict_priority":
		return q.readStrict(path, raw)
	case "deadline_ms":
		var ms *int64
		if bad := integer(&ms, 1, maxCount)(path, raw); bad != nil {
			return bad
		}
		q.deadline = time.Duration(*ms) * time.Millisecond
		return nil
	case "osl", "speculative_prefill", "latency_sensitivity":
		return nil // hints that Dynamo's router uses; an answer is the same without
	}
	return invalid(path, "Unknown parameter: '%s'.", path).withCode("unknown_parameter")
}

func (q *queueing) readPriority(name string, raw json.RawMessage) *apiError {
	return integer(&q.priority, -1<<31, 1<<31-1)(name, raw)
}

func (q *queueing) readPlace(name string, raw json.RawMessage) *apiError {
	return integer(&q.place, -1<<31, 1<<31-1)(name, raw)
}

func (q *queueing) readStrict(name string, raw json.RawMessage) *apiError {
	return integer(&q.strict, 0, 1<<32-1)(name, raw)
}

// class returns the priority within its bounds; 0 if none is given.
func (q *queueing) class() int64 {
	p := q.strict
	if p == nil {
		p = q.priority
	}
	if p == nil && q.place != nil {
		p = new(-*q.place)
	}
	if p == nil {
		return 0
	}
	return min(max(*p, -maxPriority), maxPriority)
}

// due returns when the request is to be served, among those of its client: the time of its
// arrival in seconds, earlier by its priority, and later by the mean length of what is to
// be computed of its prompts if shorter ones go first. What waits long enough is due before
// everything that comes then, so that nothing starves.
func (j *job) due() float64 {
	at := j.arrived.Sub(j.f.admission.begin) - time.Duration(j.queueing.class())*aheadPerClass
	if j.f.cfg.Settings().QueuePolicy == QueueShortest {
		at += time.Duration(j.uncached()/len(j.choices)) * behindPerToken
	}
	return at.Seconds()
}

// uncached returns how many tokens of the prompts would have to be computed at the workers
// that have most of each in their caches.
func (j *job) uncached() (n int) {
	for i, c := range j.choices {
		if i > 0 && j.choices[i-1].prompt == c.prompt {
			continue
		}
		r := c.gen.routed()
		n += max(1, r.PromptTokens-j.f.caches.longest(r.Hashes)*r.BlockSize)
	}
	return n
}
