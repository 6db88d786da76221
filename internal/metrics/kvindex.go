package metrics

import "github.com/prometheus/client_golang/prometheus"

// KVIndex holds the metrics of a frontend's prefix index.
type KVIndex struct {
	predicted, reusable, found, wrong *CounterVec
}

// NewKVIndex returns the metrics of an index in r. blocks and bytes compute its size when
// metrics are read; they must not block.
func NewKVIndex(r *Registry, blocks, bytes func() float64) *KVIndex {
	r.gaugeFunc(FrontendKVIndexBlocks, "KV blocks in the prefix index, each counted once").Set(blocks)
	r.gaugeFunc(FrontendKVIndexBytes, "Memory that the prefix index uses, in bytes").Set(bytes)
	return &KVIndex{
		predicted: r.counter(FrontendKVPredicted, "Total number of KV blocks that the prefix index predicted where requests were sent", LabelWorker),
		reusable:  r.counter(FrontendKVReusable, "Total number of prompt KV blocks that at least one worker held when requests were routed", LabelWorker),
		found:     r.counter(FrontendKVFound, "Total number of KV blocks that workers found in their caches", LabelWorker),
		wrong:     r.counter(FrontendKVFalse, "Total number of predicted KV blocks that workers did not find", LabelWorker),
	}
}

// Routed compares what was predicted of the cache of a worker, and what any worker held,
// with what it found.
func (k *KVIndex) Routed(worker string, predicted, reusable, found int) {
	k.predicted.WithLabelValues(worker).Add(float64(predicted))
	k.reusable.WithLabelValues(worker).Add(float64(reusable))
	k.found.WithLabelValues(worker).Add(float64(found))
	k.wrong.WithLabelValues(worker).Add(float64(max(0, predicted-found)))
}

// Forget removes the series of a worker that has left.
func (k *KVIndex) Forget(worker string) {
	for _, c := range []*CounterVec{k.predicted, k.reusable, k.found, k.wrong} {
		c.DeletePartialMatch(prometheus.Labels{LabelWorker: worker})
	}
}
