package frontend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker"
)

// realWorker runs a decode worker with an engine whose output depends on every
// token before it: one that is lost, doubled or misplaced changes all that follow.
func (w *world) realWorker(name string, step time.Duration, changes ...func(*worker.Config)) (*worker.Worker, func()) {
	w.t.Helper()
	queue := events.NewMemoryQueue(events.QueueConfig{})
	peers := local.NewRegistry(1)
	cfg := w.c.Config(w.t, name)
	vocab := testProcessor().VocabSize()
	wcfg := worker.Config{
		Assignment: cluster.Assignment{Name: name, Role: cluster.RoleDecode, Model: cluster.ModelSpec{Name: testModel}, Node: "node-1", Device: "cpu:0", Generation: 1},
		Namespace:  cluster.DefaultNamespace, Node: "node-1", Store: w.c.Store, Bus: cfg.Bus, Queue: queue, Runtime: cfg,
		NIXL: func() nixl.Config { return nixl.Config{Transports: []nixl.Transport{peers.Transport()}} },
		Settings: func() worker.Settings {
			return worker.Settings{Prefill: router.PrefillLimits{MaxLocalTokens: 1 << 20}, RemoteTimeout: time.Second}
		},
		QueueDepth: func() int { return 0 },
		Load: func(context.Context, func(float64)) (*worker.Loaded, error) {
			return &worker.Loaded{
				Backend: mock.New(mock.Options{BlockSize: testBlock, VocabSize: vocab, MaxContext: testContext, StepTime: func(int, int) time.Duration { return step }}),
				Blocks:  256, Files: testFiles(), Release: func() {},
				Card: cluster.ModelCard{DisplayName: testModel, Digest: testDigest, HashSeed: cluster.DefaultHashSeed, Files: cardFiles(testFiles())},
			}, nil
		},
		Metrics: metrics.NewRegistry(), Log: w.c.Log,
	}
	for _, change := range changes {
		change(&wcfg)
	}
	wk := worker.New(wcfg)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- wk.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel(errors.New("test stops it"))
		select {
		case <-ended:
		case <-time.After(time.Minute):
			w.t.Error("the worker did not end")
		}
	})
	w.t.Cleanup(stop)
	patience.Until(w.t, name+" is ready", func() bool { return wk.Status().State == cluster.StateReady })
	return wk, stop
}

// expected is the text that must follow a prompt.
func expected(prompt string, n int) string {
	p := testProcessor()
	return p.Decode(mock.Continue(p.EncodePrompt(prompt), n, p.VocabSize()))
}

func TestRealWorkers(t *testing.T) {
	w := newWorld(t)
	w.realWorker("worker-1", 0)
	w.realWorker("worker-2", 0)
	f := w.frontend().waitModel(2)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			prompt := fmt.Sprintf("Tell me story %d.", i)
			b := textBody(body{"prompt": prompt, "temperature": 0, "max_tokens": 60, "ignore_eos": true, "stream": i%2 == 0})
			resp, err := f.tryPost(t.Context(), "/v1/completions", b)
			if err != nil {
				t.Error(err)
				return
			}
			text := ""
			if i%2 == 0 {
				text = readStream(t, resp).texts[0]
			} else {
				text = wholeAnswer(t, resp).Choices[0].Text
			}
			if want := expected(prompt, 60); text != want {
				t.Errorf("prompt %d: got %q, want %q", i, text, want)
			}
		})
	}
	wg.Wait()
}

// Workers are stopped and drained while they generate; every answer is still what
// one undisturbed engine would have said.
func TestRealWorkersComeAndGo(t *testing.T) {
	w := newWorld(t)
	step := 2 * time.Millisecond
	one, _ := w.realWorker("worker-1", step)
	_, stopTwo := w.realWorker("worker-2", step)
	f := w.frontend().waitModel(2)
	const requests, length = 16, 120
	var wg sync.WaitGroup
	ask := func(i int) {
		wg.Go(func() {
			prompt := fmt.Sprintf("Question %d?", i)
			resp, err := f.tryPost(t.Context(), "/v1/completions", textBody(body{"prompt": prompt, "temperature": 0, "max_tokens": length, "ignore_eos": true, "stream": true}))
			if err != nil {
				t.Error(err)
				return
			}
			s := readStream(t, resp)
			if want := expected(prompt, length); s.texts[0] != want || s.finish[0] != "length" || s.failed != nil {
				t.Errorf("request %d: got %q, %q, error %+v; want %q", i, s.texts[0], s.finish[0], s.failed, want)
			}
		})
	}
	for i := range requests {
		ask(i)
	}
	patience.Until(t, "the requests generate", func() bool { return f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`) > 100 })
	w.realWorker("worker-3", step)
	stopTwo() // ends in the middle of its sequences
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	if err := one.Drain(ctx, time.Time{}, false); err != nil { // finishes them
		t.Fatal(err)
	}
	for i := range requests {
		ask(requests + i)
	}
	wg.Wait()
	if got := f.metric(`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="tiny"}`); got < 1 {
		t.Errorf("%v requests moved, want some", got)
	}
	if got := f.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="",model="tiny",request_type="stream",status="success"}`); got != 2*requests {
		t.Errorf("%v requests succeeded, want %d", got, 2*requests)
	}
}
