package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// routerLoad sends prompts of token ids at a rate, whether earlier ones are answered or
// not.
type routerLoad struct {
	scale     routerScale
	url       string
	http      *http.Client
	decisions *decisionTimes
	random    *rand.Rand
	pieces    []string // of prompts: lists of pieceTokens ids
	prefixes  [][]string
}

// pieceTokens is the length of the parts that prompts are made of.
const pieceTokens = 250

func newRouterLoad(sc routerScale, url string, vocabulary int, decisions *decisionTimes) *routerLoad {
	l := &routerLoad{
		scale: sc, url: url + "/v1/completions", decisions: decisions, random: rand.New(rand.NewPCG(1, 1)),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}},
	}
	const special = 16 // ids below may have a meaning
	for range 256 {
		var b []byte
		for range pieceTokens {
			b = strconv.AppendInt(b, int64(special+l.random.IntN(vocabulary-special)), 10)
			b = append(b, ',')
		}
		l.pieces = append(l.pieces, string(b))
	}
	all := sc.tokens / pieceTokens
	for range sc.shares { // from a fifth of a prompt to four fifths
		l.prefixes = append(l.prefixes, l.draw(nil, all/5+l.random.IntN(1+all*3/5)))
	}
	return l
}

func (l *routerLoad) close() { l.http.CloseIdleConnections() }

// draw appends n random pieces.
func (l *routerLoad) draw(to []string, n int) []string {
	for range n {
		to = append(to, l.pieces[l.random.IntN(len(l.pieces))])
	}
	return to
}

// body makes a request whose prompt begins with a shared prefix.
func (l *routerLoad) body(popular *rand.Zipf) []byte {
	pieces := append([]string(nil), l.prefixes[popular.Uint64()]...)
	pieces = l.draw(pieces, l.scale.tokens/pieceTokens-len(pieces))
	b := make([]byte, 0, 6*l.scale.tokens)
	b = append(b, `{"model":"`+cluster.BuiltinModelName+`","max_tokens":1,"temperature":0,"ignore_eos":true,"prompt":[`...)
	for _, p := range pieces {
		b = append(b, p...)
	}
	b[len(b)-1] = ']'
	return append(b, '}')
}

// run sends requests for the length of a window.
func (l *routerLoad) run(ctx context.Context, policy string) (Sample, error) {
	l.decisions.take()
	var total []time.Duration
	var tokens, cached int
	var errs []error
	var mu sync.Mutex
	cpu, known := cpuTime()
	begin := time.Now()
	stacks, err := profiled(func() error {
		var wg sync.WaitGroup
		defer wg.Wait()
		popular := rand.NewZipf(l.random, 1.1, 1, uint64(len(l.prefixes)-1))
		due := begin
		for range int(float64(l.scale.rate) * l.scale.window.Seconds()) {
			due = due.Add(time.Duration(l.random.ExpFloat64() * float64(time.Second) / float64(l.scale.rate)))
			body, at := l.body(popular), due
			select {
			case <-time.After(time.Until(at)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			wg.Go(func() {
				of, found, err := l.ask(ctx, policy, body)
				took := time.Since(at)
				mu.Lock()
				defer mu.Unlock()
				total, tokens, cached = append(total, took), tokens+of, cached+found
				if err != nil {
					errs = append(errs, err)
				}
			})
		}
		return nil
	})
	took := time.Since(begin)
	after, _ := cpuTime()
	if err := errors.Join(err, errors.Join(errs[:min(len(errs), 3)]...)); err != nil {
		return nil, err
	}
	s := Sample{keyRate: float64(len(total)) / took.Seconds(), keyReused: 100 * float64(cached) / float64(max(1, tokens))}
	if known {
		s[keyCPURequest] = float64((after - cpu).Microseconds()) / float64(len(total))
	}
	s.tail(keyAnswer, total, time.Millisecond)
	s.tail(keyDecided, l.decisions.take(), time.Millisecond)
	s.account(stacks, len(total), took)
	return s, nil
}

// ask sends one request and returns the tokens of its prompt and how many were cached.
func (l *routerLoad) ask(ctx context.Context, policy string, body []byte) (tokens, cached int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Dynctl-Router-Policy", policy)
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("status %d: %.200s", resp.StatusCode, text)
	}
	if tokens, err = numberAfter(text, `"prompt_tokens":`); err != nil {
		return 0, 0, err
	}
	cached, err = numberAfter(text, `"cached_tokens":`)
	return tokens, cached, err
}

// numberAfter returns the number behind a mark in JSON.
func numberAfter(text []byte, mark string) (int, error) {
	_, rest, ok := bytes.Cut(text, []byte(mark))
	if !ok {
		return 0, fmt.Errorf("%w: no %s in %.200s", errStream, mark, text)
	}
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	return strconv.Atoi(string(rest[:n]))
}
