package cpu

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// operator names the computation of a task in profiles and accounts.
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
	opProject // of a vision part
	numOperators
)

var operatorNames = [numOperators]string{
	"other", "embed", "norm", "prepare", "qkv", "rotate", "attention", "attn-out", "gate-up", "down", "router", "experts", "head", "project",
}

// OperatorLabel is the key of the profile label that names the operator.
const OperatorLabel = "operator"

// OperatorTime is the time that a device's steps spent in one operator.
type OperatorTime struct {
	Operator string // "qkv", "attention", …
	Time     time.Duration
	Runs     int64 // number of times it ran
}

// observer measures the tasks of a device on request. Otherwise it costs a task two
// loads.
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

// label sets the calling goroutine's profile label to an operator.
func (o *observer) label(op operator) {
	if o.labelers.Load() > 0 {
		pprof.SetGoroutineLabels(o.labels[op])
	}
}

// unlabel restores the labels of the leader's caller.
func (o *observer) unlabel(ctx context.Context) {
	if o.labelers.Load() > 0 {
		pprof.SetGoroutineLabels(ctx)
	}
}

// begin returns the start time of a task, or zero if no account is running.
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

// LabelOperators sets the profile label [OperatorLabel] on all workers of the device
// until stop is called. Between tasks a worker keeps the label of the last one. Several
// calls may overlap.
func (d *Device) LabelOperators() (stop func()) {
	d.pool.observer.labelers.Add(1)
	return sync.OnceFunc(func() { d.pool.observer.labelers.Add(-1) })
}

// AccountOperators measures how long the steps of the device spend in each operator. It
// counts the time of the goroutine that calls Step, including its waits for other
// workers. stop ends the account and returns it, without operators that did not run.
// Several accounts may overlap; each counts all steps since it began.
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

// Operators returns the names of all operators in the order in which a step runs them.
func Operators() []string { return operatorNames[:] }
