package cpu

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// operator is what a task computes, as profiles and accounts name it.
type operator uint8

const (
	opOther operator = iota
	opEmbed
	opNorm
	opPrepare // activations for products
	opQKV
	opRotate
	opAttention
	opAttnOut
	opGateUp
	opDown
	opRouter
	opExperts
	opHead
	numOperators
)

var operatorNames = [numOperators]string{
	"other", "embed", "norm", "prepare", "qkv", "rotate", "attention", "attn-out", "gate-up", "down", "router", "experts", "head",
}

// OperatorLabel is the key of the profile label that names the operator.
const OperatorLabel = "operator"

// OperatorTime is the time that a device's steps spent in one operator.
type OperatorTime struct {
	Operator string // "qkv", "attention", …
	Time     time.Duration
	Runs     int64 // how often it ran
}

// observer watches the tasks of a device when somebody asks it to; otherwise a task
// costs two loads more.
type observer struct {
	labelers atomic.Int32
	accounts atomic.Int32
	times    [numOperators]atomic.Int64 // nanoseconds
	runs     [numOperators]atomic.Int64
	labels   [numOperators]context.Context
}

func newObserver() *observer {
	o := new(observer)
	for i, name := range operatorNames {
		o.labels[i] = pprof.WithLabels(context.Background(), pprof.Labels(OperatorLabel, name))
	}
	return o
}

// label marks the calling goroutine with the operator that it works for.
func (o *observer) label(op operator) {
	if o.labelers.Load() > 0 {
		pprof.SetGoroutineLabels(o.labels[op])
	}
}

// unlabel gives the leader its caller's labels back.
func (o *observer) unlabel(ctx context.Context) {
	if o.labelers.Load() > 0 {
		pprof.SetGoroutineLabels(ctx)
	}
}

// begin is the start of a task, zero when nobody counts.
func (o *observer) begin() (start time.Time) {
	if o.accounts.Load() > 0 {
		start = time.Now()
	}
	return start
}

func (o *observer) end(op operator, start time.Time) {
	if !start.IsZero() {
		o.times[op].Add(int64(time.Since(start)))
		o.runs[op].Add(1)
	}
}

// LabelOperators has all workers of the device carry the label [OperatorLabel] in
// profiles until stop is called. Between tasks a worker keeps the label of the last
// one. It may be called several times at once.
func (d *Device) LabelOperators() (stop func()) {
	d.pool.observer.labelers.Add(1)
	return sync.OnceFunc(func() { d.pool.observer.labelers.Add(-1) })
}

// AccountOperators measures how long the steps of the device spend in each operator,
// as the goroutine that calls Step sees it, waiting for the other workers included.
// stop ends it and returns what was counted meanwhile, operators that did not run left
// out. Of several that run at once each sees all steps since it began.
func (d *Device) AccountOperators() (stop func() []OperatorTime) {
	o := d.pool.observer
	var times, runs [numOperators]int64
	for i := range times {
		times[i], runs[i] = o.times[i].Load(), o.runs[i].Load()
	}
	o.accounts.Add(1)
	var once sync.Once
	return func() []OperatorTime {
		once.Do(func() { o.accounts.Add(-1) })
		var out []OperatorTime
		for i, name := range operatorNames {
			if n := o.runs[i].Load() - runs[i]; n > 0 {
				out = append(out, OperatorTime{name, time.Duration(o.times[i].Load() - times[i]), n})
			}
		}
		return out
	}
}

// Operators are the names of all operators in the order in which a step runs them.
func Operators() []string { return operatorNames[:] }
