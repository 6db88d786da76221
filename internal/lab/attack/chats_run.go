package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// chatCluster has a node for each worker and each frontend, so that one can be taken away
// without the others. Nodes of role encode get no worker.
var chatCluster = shape{
	nodes: []nodeShape{{"prefill", false}, {"decode", false}, {"decode", false}, {"decode", false}, {"decode", false}, {"encode", true}, {"encode", true}},
	up:    []string{"--prefill", "1", "--decode", "4", "--kv-blocks", strconv.Itoa(chatBlocks), "--block-size", strconv.Itoa(chatBlock)},
}

const (
	chatFirstDecode = 1 // index of a node
	chatFrontend    = 5
)

// runChats compares policies and then takes parts of the cluster away.
func runChats(ctx context.Context, bin, trace string, keep bool) error {
	c, err := startCluster(ctx, bin, keep, chatCluster)
	if err != nil {
		return err
	}
	defer c.stop()
	fmt.Println("| rule | policy | turns | failed | TTFT p50 | p95 | prompt tokens cached at the decode worker | computed by all workers |\n|---|---|---|---|---|---|---|---|")
	for i, rule := range []string{cluster.ConditionalThreshold, cluster.ConditionalLeastDelay} { // the default last: the faults come with it
		if out, err := c.dynctl(ctx, "set", "disagg.conditional="+rule); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for k, policy := range []string{"kv", "least-loaded"} {
			seen, computed, err := c.compare(ctx, policy, uint64(2*i+k))
			if err != nil {
				return err
			}
			fmt.Println("| " + rule + " " + comparison(policy, seen, computed))
			if trace != "" && rule == cluster.ConditionalLeastDelay && k == 0 { // all have the same prefixes
				if err := writeTrace(trace, seen); err != nil {
					return err
				}
			}
		}
	}
	return c.chatFaults(ctx)
}

// compare plays chats with a policy. It returns what came of them, and the tokens that the
// workers computed.
func (c *target) compare(ctx context.Context, policy string, salt uint64) ([]chatSeen, uint64, error) {
	before, err := c.computed(ctx)
	if err != nil {
		return nil, 0, err
	}
	seen := c.play(ctx, policy, makeChats(1, salt, 60, 700*time.Millisecond))
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	after, err := c.computed(ctx)
	return seen, after - before, err
}

// comparison is the row of a run.
func comparison(policy string, seen []chatSeen, computed uint64) string {
	var firsts []time.Duration
	failed, tokens, cached := 0, 0, 0
	for _, s := range seen {
		if s.err != nil {
			failed++
			continue
		}
		firsts = append(firsts, s.ttft)
		tokens, cached = tokens+len(s.turn.prompt), cached+s.cached
	}
	slices.Sort(firsts)
	at := func(q float64) time.Duration {
		return firsts[min(len(firsts)-1, int(q*float64(len(firsts))))].Round(100 * time.Microsecond)
	}
	if len(firsts) == 0 {
		return fmt.Sprintf("| %s | %d | %d |", policy, len(seen), failed)
	}
	return fmt.Sprintf("| %s | %d | %d | %s | %s | %.1f %% of %d | %d |", policy, len(seen), failed, at(0.5), at(0.95), 100*float64(cached)/float64(max(1, tokens)), tokens, computed)
}

// computed is the number of prompt tokens that the present workers have computed.
func (c *target) computed(ctx context.Context) (total uint64, err error) {
	time.Sleep(1500 * time.Millisecond) // workers tell each second
	out, err := c.dynctl(ctx, "get", "workers", "-o", "json")
	if err != nil {
		return 0, fmt.Errorf("list workers: %w: %s", err, out)
	}
	var list []struct {
		Stats struct {
			Computed uint64 `json:"computed_tokens_total"`
		} `json:"stats"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return 0, fmt.Errorf("list workers: %w: %s", err, out)
	}
	for _, w := range list {
		total += w.Stats.Computed
	}
	return total, nil
}

// writeTrace writes the turns as they came in the format of Mooncake. A block of the trace
// has 512 tokens, one of the chats has 16: prompts are that many times as long in the
// trace, and have full blocks only.
func writeTrace(path string, seen []chatSeen) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	const traceBlock = 512
	for _, s := range seen {
		chain := blockhash.Chain{BlockSize: chatBlock, Seed: 1}
		chain.Extend(s.turn.prompt)
		if err := lines.Encode(map[string]any{
			"timestamp": s.asked.Sub(seen[0].asked).Milliseconds(), "input_length": len(chain.Seq) * traceBlock, "output_length": chatAnswer, "hash_ids": chain.Seq,
		}); err != nil {
			return err
		}
	}
	return w.Flush()
}

// chatFault is a part that is taken away and comes back while chats go on.
type chatFault struct {
	name string
	do   func(ctx context.Context, c *target) error
}

func chatFaults() []chatFault {
	return []chatFault{
		{"nothing", func(context.Context, *target) error { return nil }},
		{"kill -9 of a node with a decode worker, back after 2 s", func(_ context.Context, c *target) error {
			c.nodes[chatFirstDecode].end(syscall.SIGKILL)
			time.Sleep(2 * time.Second)
			return c.nodes[chatFirstDecode].launch()
		}},
		{"dynctl restart of a decode worker", func(ctx context.Context, c *target) error {
			names, err := c.workers(ctx, "decode")
			if err != nil {
				return err
			}
			out, err := c.dynctl(ctx, "restart", names[len(names)-1])
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}},
		{"NATS killed for 10 s", func(_ context.Context, c *target) error {
			c.nats.end(syscall.SIGKILL)
			time.Sleep(10 * time.Second)
			return c.nats.launch()
		}},
		{"a frontend stopped and started", func(_ context.Context, c *target) error {
			c.nodes[chatFrontend].end(syscall.SIGTERM)
			return c.nodes[chatFrontend].launch()
		}},
	}
}

// chatFaults tries each fault in the middle of chats with policy kv.
func (c *target) chatFaults(ctx context.Context) error {
	fmt.Println("\n| fault | took | turns | failed | predicted too much | longest time without a right one | predicted too little | slowest TTFT |\n|---|---|---|---|---|---|---|---|")
	failed := 0
	for i, fault := range chatFaults() {
		var begin, end time.Time
		done := make(chan error, 1)
		go func() {
			time.Sleep(10 * time.Second) // until the caches are full
			begin = time.Now()
			err := fault.do(ctx, c)
			end = time.Now()
			done <- err
		}()
		seen := c.play(ctx, "kv", makeChats(uint64(100+i), uint64(100+i), 50, 500*time.Millisecond))
		if err := <-done; err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tellFault(fault.name, seen, begin, end)
		failed += faultOf(seen).failed
	}
	if failed > 0 {
		return fmt.Errorf("%d requests failed", failed)
	}
	return nil
}

// faultSeen is what came of the turns around a fault.
type faultSeen struct {
	turns, failed      int
	tooMuch, tooLittle int // turns whose worker had fewer blocks than predicted, or more
	// longest is the longest time from one prediction of too much to the last one behind it
	// before a turn without.
	longest time.Duration
	slowest time.Duration // of the first tokens
}

func faultOf(seen []chatSeen) (out faultSeen) {
	out.turns = len(seen)
	var since time.Time
	for _, s := range seen {
		out.slowest = max(out.slowest, s.ttft)
		switch {
		case s.err != nil:
			out.failed++
			continue
		case s.predicted > s.found:
			out.tooMuch++
			if since.IsZero() {
				since = s.asked
			}
			out.longest = max(out.longest, s.asked.Sub(since))
			continue
		case s.predicted < s.found:
			out.tooLittle++
		}
		since = time.Time{}
	}
	return out
}

// tellFault prints the turns that failed or were predicted wrongly, and the row of a fault.
func tellFault(name string, seen []chatSeen, begin, end time.Time) {
	for _, s := range seen {
		after := s.asked.Sub(begin).Round(time.Millisecond)
		switch {
		case s.err != nil:
			fmt.Printf("  %s after the fault: %v\n", after, s.err)
		case s.predicted != s.found:
			fmt.Printf("  %s after the fault: %s, predicted %d, found %d of %d\n", after, s.worker, s.predicted, s.found, len(s.turn.prompt)/chatBlock)
		}
	}
	f := faultOf(seen)
	fmt.Printf("| %s | %s | %d | %d | %d | %s | %d | %s |\n", name, end.Sub(begin).Round(100*time.Millisecond), f.turns, f.failed, f.tooMuch, f.longest.Round(time.Millisecond), f.tooLittle, f.slowest.Round(time.Millisecond))
}
