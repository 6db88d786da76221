package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The chats: sessions that begin at random times, each with one of a few system prompts,
// and turns with pauses in between. Prompts are token ids; the answers of earlier turns
// are drawn, too, so that a trace says before the run which blocks prompts share.
const (
	chatSystems   = 6
	chatSystem    = 1024 // tokens of a system prompt
	chatTurn      = 96   // tokens that a turn adds: those of the last answer and of the user
	chatAnswer    = 16   // tokens
	chatMostTurns = 12
	chatBlock     = 16 // tokens
	// chatBlocks is the size of a worker's cache, small enough that one worker cannot keep
	// what all sessions need.
	chatBlocks     = 512
	chatVocabulary = 256
	chatPause      = 1500 * time.Millisecond
	chatTimeout    = 60 * time.Second
)

// chatTurnSpec is one turn: a prompt, and when it comes after the turn before.
type chatTurnSpec struct {
	after  time.Duration // the session's begin, for the first turn
	prompt []uint32
}

// makeChats draws the sessions of a run: their lengths, pauses and system prompts from
// seed, their tokens from salt. Runs of other salts share no block.
func makeChats(seed, salt uint64, sessions int, every time.Duration) (out [][]chatTurnSpec) {
	r, tokens := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(salt, 4))
	draw := func(n int) []uint32 {
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = 16 + tokens.Uint32N(chatVocabulary-16)
		}
		return ids
	}
	var systems [][]uint32
	for range chatSystems {
		systems = append(systems, draw(chatSystem))
	}
	begin := time.Duration(0)
	for range sessions {
		begin += time.Duration(r.ExpFloat64() * float64(every))
		history := append(slices.Clone(systems[r.IntN(chatSystems)]), draw(chatTurn)...)
		session := []chatTurnSpec{{begin, history}}
		for range r.IntN(chatMostTurns) {
			history = append(slices.Clip(history), draw(chatTurn)...)
			session = append(session, chatTurnSpec{time.Duration(r.ExpFloat64() * float64(chatPause)), history})
		}
		out = append(out, session)
	}
	return out
}

// chatSeen is what a client saw of one turn.
type chatSeen struct {
	asked           time.Time
	ttft            time.Duration
	turn            chatTurnSpec
	cached          int // tokens
	predicted       int // blocks, of the route that the frontend tells
	found           int
	policy          string
	worker, prefill string
	err             error
}

// play sends the sessions with one policy and returns what came of their turns. Each
// session talks to one of the frontends until that takes no connections.
func (c *target) play(ctx context.Context, policy string, sessions [][]chatTurnSpec) []chatSeen {
	var mu sync.Mutex
	var out []chatSeen
	var wg sync.WaitGroup
	for i, session := range sessions {
		wg.Go(func() {
			for _, turn := range session {
				select {
				case <-time.After(turn.after):
				case <-ctx.Done():
					return
				}
				seen := c.chat(context.WithoutCancel(ctx), i, policy, turn)
				mu.Lock()
				out = append(out, seen)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b chatSeen) int { return a.asked.Compare(b.asked) })
	return out
}

// chat asks for one turn, at the next frontend where one takes no connection.
func (c *target) chat(ctx context.Context, session int, policy string, turn chatTurnSpec) chatSeen {
	ctx, cancel := context.WithTimeout(ctx, chatTimeout)
	defer cancel()
	seen := chatSeen{asked: time.Now(), turn: turn, policy: policy}
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": turn.prompt, "max_tokens": chatAnswer, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		seen.err = err
		return seen
	}
	for try := range c.frontends {
		url := c.frontends[(session+try)%len(c.frontends)]
		if seen.err = seen.ask(ctx, url, policy, body); !errors.Is(seen.err, syscall.ECONNREFUSED) {
			break
		}
	}
	return seen
}

func (s *chatSeen) ask(ctx context.Context, url, policy string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Dynctl-Router-Policy", policy)
	req.Header.Set("X-Dynctl-Route", "1")
	resp, err := streamClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d: %s", resp.StatusCode, lines.Text())
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return s.readRoute(resp.Header.Get("X-Dynctl-Route"))
		}
		if s.ttft == 0 {
			s.ttft = time.Since(s.asked)
		}
		var e struct {
			Error json.RawMessage
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if e.Error != nil {
			return fmt.Errorf("error in the stream: %s", e.Error)
		}
		s.cached = max(s.cached, e.Usage.Details.Cached)
	}
	return errors.Join(errors.New("the stream broke off"), lines.Err())
}

func (s *chatSeen) readRoute(header string) error {
	var of struct {
		Worker, Prefill string
		Predicted       int  `json:"predicted_blocks"`
		Found           *int `json:"found_blocks"`
	}
	if err := json.Unmarshal([]byte(header), &of); err != nil {
		return fmt.Errorf("the route %q: %w", header, err)
	}
	s.worker, s.prefill, s.predicted, s.found = of.Worker, of.Prefill, of.Predicted, of.Predicted
	if of.Found != nil {
		s.found = *of.Found
	}
	return nil
}
