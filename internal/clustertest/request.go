package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Answer is what a client got for one request.
type Answer struct {
	Text   string
	Finish string
	Usage  struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
	Cached int // tokens of the prompt that were found in a cache
	Events int // streamed events with text
}

// Body is a request body.
type Body map[string]any

// Complete streams a text completion to its end. A stream that ends without
// [DONE], or with an error event, is an error.
func (c *Cluster) Complete(ctx context.Context, body Body) (a Answer, err error) {
	return c.Ask(ctx, c.Model, body)
}

// Ask is Complete for any model.
func (c *Cluster) Ask(ctx context.Context, model string, body Body) (a Answer, err error) {
	body = maps.Clone(body) // of which the caller may make more requests at the same time
	body["model"], body["stream"] = model, true
	body["stream_options"] = map[string]any{"include_usage": true}
	resp, err := c.Post(ctx, "/v1/completions", body)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return a, fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if a.Finish == "" {
				return a, errors.New("the stream ended without a finish reason")
			}
			return a, nil
		}
		if err := a.take([]byte(data)); err != nil {
			return a, err
		}
	}
	return a, errors.Join(errors.New("the stream broke off"), sc.Err())
}

func (a *Answer) take(data []byte) error {
	var e struct {
		Choices []struct {
			Text   string  `json:"text"`
			Finish *string `json:"finish_reason"`
		} `json:"choices"`
		Usage json.RawMessage `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("event %s: %w", data, err)
	}
	if e.Error != nil {
		return fmt.Errorf("error event: %s", e.Error)
	}
	if e.Usage != nil {
		if err := json.Unmarshal(e.Usage, &a.Usage); err != nil {
			return fmt.Errorf("usage %s: %w", e.Usage, err)
		}
		var more struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		if err := json.Unmarshal(e.Usage, &more); err != nil {
			return fmt.Errorf("usage %s: %w", e.Usage, err)
		}
		a.Cached = more.Details.Cached
	}
	for _, ch := range e.Choices {
		a.Text += ch.Text
		a.Events++
		if ch.Finish != nil {
			a.Finish = *ch.Finish
		}
	}
	return nil
}

// Post sends a request to the frontend.
func (c *Cluster) Post(ctx context.Context, path string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// WaitServed waits until the frontend routes to so many decode workers.
func (c *Cluster) WaitServed(decode int) {
	c.t.Helper()
	deadline := time.Now().Add(c.opts.Timeout)
	for {
		if c.served(decode) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the frontend does not serve %d decode workers after %s", decode, c.opts.Timeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *Cluster) served(decode int) bool {
	var models struct {
		Data []struct{ ID, Parent string } `json:"data"`
	}
	var health struct {
		Instances []cluster.Instance `json:"instances"`
	}
	if c.getJSON("/v1/models", &models) != nil || c.getJSON("/health", &health) != nil {
		return false
	}
	for _, m := range models.Data {
		if m.ID != c.Model && m.Parent != c.Model {
			return false
		}
	}
	return len(models.Data) > 0 && len(health.Instances) == decode
}

func (c *Cluster) getJSON(path string, v any) error {
	resp, err := http.Get(c.URL + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

// Metrics returns the metrics of the frontend's node, in Prometheus' text form.
func (c *Cluster) Metrics() string {
	c.t.Helper()
	resp, err := http.Get(c.URL + "/metrics")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// Generate asks one decode worker directly and returns token ids and where the
// prompt was computed.
func (c *Cluster) Generate(ctx context.Context, inst cluster.Instance, req protocol.PreprocessedRequest) (tokens []uint32, timing protocol.Timing, err error) {
	stream, err := c.plane.Call(ctx, inst.Transport.Address(), req.RequestID, nil, req)
	if err != nil {
		return nil, timing, err
	}
	defer stream.Close()
	for {
		var o protocol.EngineOutput
		if err := stream.Recv(ctx, &o); err != nil {
			return tokens, timing, err
		}
		tokens = append(tokens, o.TokenIDs...)
		if o.Timing != nil {
			timing = *o.Timing
		}
		if o.Finish != protocol.FinishNone {
			return tokens, timing, nil
		}
	}
}

// Instances returns the registered instances of an endpoint.
func (c *Cluster) Instances(component, endpoint string) []cluster.Instance {
	var out []cluster.Instance
	for _, i := range c.Watch.View().Instances {
		if i.Component == component && i.Endpoint == endpoint {
			out = append(out, i)
		}
	}
	return out
}

// Digest is the digest of the served model. It waits for its card: workers may be ready a
// moment before a store that was lost has it again.
func (c *Cluster) Digest() string {
	c.t.Helper()
	deadline := time.Now().Add(c.opts.Timeout)
	for {
		cards, err := c.Client.ModelCards(c.t.Context())
		switch {
		case err == nil && len(cards) > 0:
			return cards[0].Digest
		case time.Now().After(deadline):
			c.t.Fatalf("no model card after %s: %v", c.opts.Timeout, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// probeTokens is the length of prompts that only find out where they are prefilled: a few
// blocks.
const probeTokens = 48

// WaitRemotePrefill waits until every decode worker sends prompts to prefill
// workers: it may learn of them a moment after they are ready.
func (c *Cluster) WaitRemotePrefill() {
	c.t.Helper()
	digest := c.Digest()
	deadline := time.Now().Add(c.opts.Timeout)
	for n, inst := range c.Instances(cluster.RoleDecode.Component(), cluster.EndpointGenerate) {
		for try := uint32(0); ; try++ {
			prompt := make([]uint32, probeTokens)
			for i := range prompt {
				prompt[i] = (uint32(i)*try + uint32(n) + try) % 256
			}
			_, timing, err := c.Generate(c.t.Context(), inst, protocol.PreprocessedRequest{
				RequestID: fmt.Sprintf("probe-%d-%d", n, try), Model: c.Model, ModelSum: digest, TokenIDs: prompt,
				Stop: protocol.StopConditions{MaxTokens: 1},
			})
			if err == nil && timing.Prefill != "local" {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("%s never used a prefill worker: %+v %v", inst.Worker, timing, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// LiveStats asks every worker for its present status. Workers that are dead or do not
// answer in time are missing.
func (c *Cluster) LiveStats() []cluster.WorkerStatus {
	out, _ := c.liveStats()
	return out
}

// liveStats also says how many were asked.
func (c *Cluster) liveStats() (out []cluster.WorkerStatus, asked int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	for _, i := range c.Watch.View().Instances {
		if i.Endpoint != cluster.EndpointStats {
			continue
		}
		asked++
		stream, err := c.plane.Call(ctx, i.Transport.Address(), "stats", nil, nil)
		if err != nil {
			continue
		}
		var st cluster.WorkerStatus
		if stream.Recv(ctx, &st) == nil {
			out = append(out, st)
		}
		stream.Close()
	}
	return out, asked
}
