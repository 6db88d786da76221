package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	probeEvery   = 100 * time.Millisecond
	probeTimeout = 30 * time.Second
	streamTokens = 80
)

var (
	probeClient    = from("127.0.0.1")
	streamClient   = from("127.0.0.3")
	attackerClient = from("127.0.0.2")
)

// streamPrompts are the prompts of clients whose answers are compared.
var streamPrompts = []string{
	"Tell me about the sea and the ships that cross it in winter.",
	"One two three four five six seven",
	"The code of the red house is 4711. What is the code of the red house?",
}

// attack is something that is done to the cluster while its clients are watched.
type attack struct {
	name string
	// what is a sentence for the report.
	what string
	// skip says why it cannot be done here, or "".
	skip func() string
	// run attacks until ctx ends, or does what it does once; answers go to seen.
	run func(ctx context.Context, c *target, seen *tally) error
	// after undoes what is left of it.
	after func(ctx context.Context, c *target) error
	// alone means that it has a cluster of its own and no client is measured here.
	alone bool
}

// tally counts what attackers did and got.
type tally struct {
	mu    sync.Mutex
	n     map[string]int
	tried int
	in    int // times that an attacker got what is not theirs
}

func (t *tally) add(answer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n[answer]++
	t.tried++
}

func (t *tally) gotIn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in++
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for k, n := range t.n {
		parts = append(parts, fmt.Sprintf("%s: %d", k, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// result is the effect of an attack on the clients.
type result struct {
	attack
	skipped   string
	err       error
	took      time.Duration
	latencies []time.Duration // of the measured client's requests that were answered
	failed    []string        // why others were not
	streams   int64
	wrong     []string // streams that broke off or said something else
	lost      []string // processes
	seen      *tally

	before, peak, afterwards int64 // bytes of memory
	bound                    time.Duration
}

// try runs one attack between a few seconds of quiet.
func (c *target) try(ctx context.Context, a attack, long time.Duration) *result {
	r := &result{attack: a, seen: &tally{n: map[string]int{}}}
	if a.skip != nil {
		if r.skipped = a.skip(); r.skipped != "" {
			return r
		}
	}
	start := time.Now()
	r.before = c.resident()
	var mu sync.Mutex
	clients, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if !a.alone {
		wg.Go(func() { c.probe(clients, r, &mu) })
		for i := range streamPrompts {
			wg.Go(func() { c.streams(clients, i, r, &mu) })
		}
	}
	var peak atomic.Int64
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			peak.Store(max(peak.Load(), c.resident()))
			select {
			case <-tick.C:
			case <-clients.Done():
				return
			}
		}
	})
	time.Sleep(time.Second) // of quiet
	attacking, over := context.WithTimeout(ctx, long)
	err := a.run(attacking, c, r.seen)
	over()
	if a.after != nil {
		err = errors.Join(err, a.after(ctx, c))
	}
	r.took = time.Since(start)
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	stop()
	wg.Wait()
	r.err, r.peak = err, peak.Load()
	for _, p := range append([]*program{c.etcd, c.nats}, c.nodes...) {
		if p.lost() {
			r.lost = append(r.lost, p.name)
			if err := p.launch(); err != nil {
				r.err = errors.Join(r.err, err)
			}
		}
	}
	// The collector and the system take memory back in their own time.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		r.afterwards = c.resident()
		if r.afterwards < r.before+r.before/5+64<<20 || time.Now().After(end) || ctx.Err() != nil {
			return r
		}
	}
}

// probe asks for one token every 100 ms, whether earlier requests are answered or not.
func (c *target) probe(ctx context.Context, r *result, mu *sync.Mutex) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	body := []byte(`{"model":"` + model + `","prompt":"Hello","max_tokens":1,"temperature":0}`)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			start := time.Now()
			// What was asked is answered, also after the attack.
			one, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
			defer cancel()
			status, answer, err := post(one, probeClient, c.url+"/v1/completions", body)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				r.failed = append(r.failed, err.Error())
			case status != http.StatusOK:
				r.failed = append(r.failed, fmt.Sprintf("%d %.200s", status, answer))
			default:
				r.latencies = append(r.latencies, time.Since(start))
			}
		})
	}
}

func post(ctx context.Context, client *http.Client, url string, body []byte) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, string(answer), err
}

// streams asks for one answer after the other and compares each.
func (c *target) streams(ctx context.Context, i int, r *result, mu *sync.Mutex) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*probeTimeout)
		text, err := c.stream(one, i)
		cancel()
		mu.Lock()
		r.streams++
		if err != nil {
			r.wrong = append(r.wrong, err.Error())
		} else if text != c.want[i] {
			r.wrong = append(r.wrong, fmt.Sprintf("got %q, want %q", text, c.want[i]))
		}
		mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c *target) stream(ctx context.Context, i int) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": streamPrompts[i], "max_tokens": streamTokens, "temperature": 0, "stream": true, "ignore_eos": true,
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := streamClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	var text strings.Builder
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return text.String(), nil
		}
		var e struct {
			Choices []struct{ Text string }
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return "", err
		}
		if e.Error != nil {
			return "", fmt.Errorf("error in the stream: %s", e.Error)
		}
		for _, ch := range e.Choices {
			text.WriteString(ch.Text)
		}
	}
	return "", errors.Join(errors.New("the stream broke off"), sc.Err())
}
