package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// attacks lists attacks by clients and strangers over the network.
func attacks() []attack {
	return []attack{
		{name: "quiet", what: "nothing happens", run: func(ctx context.Context, _ *target, _ *tally) error { <-ctx.Done(); return nil }},
		{name: "long messages", what: "16 clients send chat requests with one message of 44 MiB", run: flood(16, 48, "/v1/chat/completions", func(int) []byte { return longMessage(44 << 20) })},
		{name: "many messages", what: "8 clients send chat requests of a million messages of one letter", run: flood(8, 24, "/v1/chat/completions", func(int) []byte { return manyMessages(1_000_000) })},
		{name: "long prompt", what: "8 clients send prompts of nine million tokens to a context of 4,096", run: flood(8, 24, "/v1/completions", func(int) []byte { return prompt(strings.Repeat("a ", 9_000_000)) })},
		{name: "unbroken prompt", what: "8 clients send prompts of 20 MiB without a space", run: flood(8, 24, "/v1/completions", func(int) []byte { return prompt(strings.Repeat("ab", 10<<20)) })},
		{name: "token arrays", what: "8 clients send prompts of nine million token ids", run: flood(8, 24, "/v1/completions", func(int) []byte {
			return []byte(`{"model":"` + model + `","max_tokens":1,"prompt":[` + strings.TrimSuffix(strings.Repeat("100,", 9_000_000), ",") + `]}`)
		})},
		{name: "many prompts", what: "8 clients send requests of a million prompts", run: flood(8, 24, "/v1/completions", func(int) []byte {
			return []byte(`{"model":"` + model + `","max_tokens":1,"prompt":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 1_000_000), ",") + `]}`)
		})},
		{name: "deep JSON", what: "8 clients send forty million brackets", run: flood(8, 24, "/v1/chat/completions", func(int) []byte { return []byte(strings.Repeat("[", 40_000_000)) })},
		{name: "logit bias", what: "8 clients send a million biases", run: flood(8, 24, "/v1/completions", func(int) []byte { return bias(1_000_000) })},
		{name: "stop strings", what: "8 clients send 32 stop strings of 500 KB", run: flood(8, 40, "/v1/completions", func(i int) []byte {
			stops := make([]string, 32)
			for k := range stops {
				stops[k] = strings.Repeat("ab", 250_000) + strconv.Itoa(i*100+k)
			}
			return marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 50, "stop": stops})
		})},
		{name: "ambiguous grammars", what: "16 clients send ambiguous grammars, no two the same", run: flood(16, 400, "/v1/completions", func(i int) []byte {
			return marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 200, "ignore_eos": true, "guided_grammar": ambiguous(i)})
		})},
		{name: "regular expressions", what: "8 clients send expressions whose automata explode", run: flood(8, 400, "/v1/completions", func(i int) []byte {
			return marshal(map[string]any{"model": model, "prompt": "Hello", "max_tokens": 50, "guided_regex": explosive(i)})
		})},
		{name: "schemas", what: "8 clients send schemas that are large, deep, recursive or full of bounds", run: flood(8, 200, "/v1/chat/completions", func(i int) []byte {
			return marshal(map[string]any{
				"model": model, "max_tokens": 50, "messages": []any{map[string]any{"role": "user", "content": "Hello"}},
				"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "x", "strict": true, "schema": schema(i)}},
			})
		})},
		{name: "wide requests", what: "8 requests for 128 answers each, over and over", run: flood(8, 64, "/v1/completions", func(i int) []byte {
			return marshal(map[string]any{"model": model, "prompt": fmt.Sprintf("Story %d:", i), "max_tokens": 100, "n": 128, "temperature": 1})
		})},
		{name: "many clients", what: "64 clients of one address ask for 300 tokens after 1,500 each", run: flood(64, 100_000, "/v1/completions", func(i int) []byte {
			return marshal(map[string]any{"model": model, "prompt": fmt.Sprintf("%d ", i) + strings.Repeat("the sea ", 700), "max_tokens": 300, "ignore_eos": true})
		})},
		{name: "slow bodies", what: "500 clients send a body byte by byte", run: slowBodies},
		{name: "clients that leave", what: "64 clients ask for long answers and cut their connections", run: leavers},
		{name: "bad inputs", what: "8 clients send requests with random damage", run: badInputs},
		{name: "silent connections", what: "1,000 connections to each port say nothing", run: silent},
		{name: "strangers", what: "connections to each port speak random bytes, old greetings and other protocols", run: strangers},
	}
}

// flood has clients send bodies, at most so many in all, until ctx ends. Bodies are made
// before, a few of them, so that making them costs the cluster no processor.
func flood(clients, most int, path string, body func(i int) []byte) func(context.Context, *target, *tally) error {
	return func(ctx context.Context, c *target, seen *tally) error {
		var made [][]byte
		for i, size := 0, 0; i < most && i < 400 && size < 64<<20; i++ {
			b := body(i)
			made = append(made, b)
			size += len(b)
		}
		var next atomic.Int64
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for ctx.Err() == nil {
					i := int(next.Add(1)) - 1
					if i >= most {
						return
					}
					status, answer, err := post(ctx, attackerClient, c.url+path, made[i%len(made)])
					switch {
					case ctx.Err() != nil:
						seen.add("cut at the end")
					case err != nil:
						seen.add("connection lost")
					default:
						seen.add(strconv.Itoa(status))
						if status == http.StatusInternalServerError {
							seen.add("500 says " + firstOf(answer, 120))
						}
						if status >= 429 { // as a client does that is told to wait
							pause(ctx, 200*time.Millisecond)
						}
					}
				}
			})
		}
		wg.Wait()
		return nil
	}
}

func firstOf(s string, n int) string { return s[:min(n, len(s))] }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of what this file makes
	}
	return b
}

func prompt(text string) []byte {
	return []byte(`{"model":"` + model + `","max_tokens":1,"prompt":"` + text + `"}`)
}

func longMessage(size int) []byte {
	return []byte(`{"model":"` + model + `","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`)
}

func manyMessages(n int) []byte {
	one := `{"role":"user","content":"a"},`
	return []byte(`{"model":"` + model + `","max_tokens":1,"messages":[` + strings.TrimSuffix(strings.Repeat(one, n), ",") + `]}`)
}

func bias(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + model + `","max_tokens":1,"prompt":"Hello","logit_bias":{"0":1`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	b.WriteString("}}")
	return b.Bytes()
}

// ambiguous is a grammar in which a text of spaces and letters has very many
// derivations.
func ambiguous(i int) string {
	rules := "c%d ::= [a-z ]* | [ a-z]* c%d\nb%d ::= " + strings.Repeat("c%d ", 4+i%5) + "\na%d ::= " + strings.Repeat("b%d ", 4+i%7) + "\nroot ::= " + strings.Repeat("a%d ", 4+i%9)
	return strings.ReplaceAll(rules, "%d", strconv.Itoa(i))
}

func explosive(i int) string {
	switch i % 5 {
	case 0:
		return "(a|aa|b)*" + strings.Repeat("[a-z]", 15+i%10) + "x" + strconv.Itoa(i)
	case 1:
		return fmt.Sprintf("((a{1,100}){1,100}){1,%d}", 100+i)
	case 2:
		return "(" + strings.Repeat("(a|b|ab)*", 10+i%10) + ")*" + strconv.Itoa(i)
	case 3:
		return "(.*a.*b.*c.*){1," + strconv.Itoa(50+i) + "}"
	}
	return strings.Repeat("(", 2000+i) + "a" + strings.Repeat(")*", 2000+i)
}

func schema(i int) any {
	str := map[string]any{"type": "string"}
	switch i % 6 {
	case 0:
		values := make([]string, 20_000)
		for k := range values {
			values[k] = fmt.Sprintf("value %d %d", i, k)
		}
		return map[string]any{"enum": values}
	case 1:
		var s any = str
		for k := range 500 {
			s = map[string]any{"type": "object", "properties": map[string]any{fmt.Sprintf("p%d_%d", i, k): s}}
		}
		return s
	case 2:
		return map[string]any{"type": "string", "minLength": 1_000_000 + i, "maxLength": 1_000_000_000}
	case 3:
		return map[string]any{"type": "array", "minItems": 100_000 + i, "items": str, "maxItems": 1_000_000_000}
	case 4:
		choices := make([]any, 300)
		for k := range choices {
			choices[k] = map[string]any{"type": "object", "properties": map[string]any{"a": str, "b": str, fmt.Sprintf("c%d", k+i): map[string]any{"$ref": "#"}}}
		}
		return map[string]any{"anyOf": choices}
	}
	props := map[string]any{}
	for k := range 2000 {
		props[fmt.Sprintf("p%d_%d", i, k)] = map[string]any{"type": "string", "pattern": "^(a|b){1,50}[a-z]*$"}
	}
	return map[string]any{"type": "object", "properties": props}
}

// slowBodies opens requests whose bodies take longer than the attack.
func slowBodies(ctx context.Context, c *target, seen *tally) error {
	host := strings.TrimPrefix(c.url, "http://")
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			conn, err := dialFrom("127.0.0.2", host)
			if err != nil {
				seen.add("refused")
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 40000000\r\n\r\n{")
			for ctx.Err() == nil {
				if _, err := conn.Write([]byte(" ")); err != nil {
					seen.add("cut by the server")
					return
				}
				pause(ctx, 500*time.Millisecond)
			}
			seen.add("held to the end")
		})
	}
	wg.Wait()
	return nil
}

func dialFrom(ip, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 5 * time.Second}
	return d.Dial("tcp", addr)
}

// leavers ask for long answers and reset their connections, at most 5,000 times.
func leavers(ctx context.Context, c *target, seen *tally) error {
	host := strings.TrimPrefix(c.url, "http://")
	body := marshal(map[string]any{"model": model, "prompt": strings.Repeat("the sea ", 500), "max_tokens": 1000, "stream": true, "ignore_eos": true})
	var wg sync.WaitGroup
	var n atomic.Int64
	for k := range 64 {
		r := rand.New(rand.NewPCG(uint64(k), 1))
		wg.Go(func() {
			for ctx.Err() == nil && n.Add(1) <= 5000 {
				conn, err := dialFrom("127.0.0.2", host)
				if err != nil {
					seen.add("refused")
					continue
				}
				fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				pause(ctx, time.Duration(r.IntN(300))*time.Millisecond)
				if r.IntN(2) == 0 {
					_ = conn.(*net.TCPConn).SetLinger(0) // a reset in place of an orderly end
				}
				conn.Close()
				seen.add("left")
			}
		})
	}
	wg.Wait()
	return nil
}

// badInputs sends requests that are damaged at random: no answer may be a fault of the
// server.
func badInputs(ctx context.Context, c *target, seen *tally) error {
	seeds := []string{
		`{"model":"dynctl-tiny","messages":[{"role":"user","content":"Hello"}],"max_tokens":2,"temperature":0.5,"top_p":0.9,"seed":1,"stop":["a"],"n":1}`,
		`{"model":"dynctl-tiny","messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],"tool_choice":"auto","max_tokens":2}`,
		`{"model":"dynctl-tiny","messages":[{"role":"user","content":"Hello"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}},"max_tokens":4,"logprobs":true,"top_logprobs":2}`,
		`{"model":"dynctl-tiny","prompt":[1,2,3],"max_tokens":2,"logit_bias":{"5":-100},"echo":true,"logprobs":1}`,
		`{"model":"dynctl-tiny","prompt":["a","b"],"max_tokens":2,"presence_penalty":1,"frequency_penalty":-1,"stream":true,"stream_options":{"include_usage":true}}`,
	}
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}
	tokens := []string{"null", "true", "-1", "1e999", "9223372036854775808", `""`, "[]", "{}", `"\ud800"`, "\x00", "\xff\xfe", ",", ":", "\"", "0.1", "[[[[", `{"a":{"a":{"a":1}}}`}
	var wg sync.WaitGroup
	var n atomic.Int64
	for k := range 8 {
		r := rand.New(rand.NewPCG(uint64(k), 7))
		wg.Go(func() {
			for ctx.Err() == nil && n.Add(1) <= 200_000 {
				b := []byte(seeds[r.IntN(len(seeds))])
				for range 1 + r.IntN(4) {
					at := r.IntN(len(b) + 1)
					switch r.IntN(4) {
					case 0:
						b = append(b[:at:at], b[min(len(b), at+1+r.IntN(12)):]...)
					case 1:
						b = append(b[:at:at], append([]byte(tokens[r.IntN(len(tokens))]), b[at:]...)...)
					case 2:
						if at < len(b) {
							b[at] = byte(r.IntN(256))
						}
					default: // another value in place of one
						if i := bytes.IndexByte(b[at:], ':'); i >= 0 {
							end := at + i + 1
							stop := end
							for stop < len(b) && b[stop] != ',' && b[stop] != '}' {
								stop++
							}
							b = append(b[:end:end], append([]byte(tokens[r.IntN(len(tokens))]), b[stop:]...)...)
						}
					}
				}
				status, answer, err := post(ctx, attackerClient, c.url+paths[r.IntN(len(paths))], b)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					seen.add("connection lost")
				case status == http.StatusInternalServerError:
					seen.add("500 says " + firstOf(answer, 120))
					seen.gotIn()
				default:
					seen.add(strconv.Itoa(status))
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// doors are all addresses at which the dynamods listen.
func (c *target) doors() ([]string, error) {
	var out []string
	for _, n := range c.nodes {
		ps, err := ports(n.pid())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.name, err)
		}
		for _, p := range ps {
			out = append(out, net.JoinHostPort("127.0.0.1", p))
		}
	}
	return out, nil
}

// silent opens connections that say nothing. The frontend's own port gets fewer, since
// the clients that are measured need some of what this process may open.
func silent(ctx context.Context, c *target, seen *tally) error {
	doors, err := c.doors()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, addr := range doors {
		wg.Go(func() {
			var conns []net.Conn
			defer func() {
				for _, c := range conns {
					c.Close()
				}
			}()
			for i := 0; i < 1000 && ctx.Err() == nil; i++ {
				conn, err := dialFrom("127.0.0.2", addr)
				if err != nil {
					seen.add("refused")
					continue
				}
				seen.add("opened")
				conns = append(conns, conn)
			}
			<-ctx.Done()
		})
	}
	wg.Wait()
	return nil
}

// strangers speak to every port but the HTTP ones and look for an answer that is more
// than a greeting.
func strangers(ctx context.Context, c *target, seen *tally) error {
	doors, err := c.doors()
	if err != nil {
		return err
	}
	say := map[string][]byte{
		"old greeting": append([]byte("dynrp\x00\x01\x00"), 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0),
		"new greeting": append([]byte("dynrp\x00\x02\x00"), make([]byte, 256)...),
		"http":         []byte("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"),
		"zeros":        make([]byte, 4096),
		"ones":         bytes.Repeat([]byte{0xff}, 4096),
	}
	var wg sync.WaitGroup
	var n atomic.Int64
	for k := range 16 {
		r := rand.New(rand.NewPCG(uint64(k), 3))
		wg.Go(func() {
			for ctx.Err() == nil && n.Add(1) <= 20_000 {
				addr := doors[r.IntN(len(doors))]
				text, name := make([]byte, 1+r.IntN(2000)), "random bytes"
				for i := range text {
					text[i] = byte(r.IntN(256))
				}
				for known, b := range say { // in any order
					if r.IntN(2) == 0 {
						name, text = known, b
					}
					break
				}
				answer, err := exchange(addr, text)
				switch {
				case err != nil:
					seen.add(name + ": refused")
				case bytes.HasPrefix(answer, []byte("HTTP/1.")):
					seen.add("answered in HTTP")
				case len(answer) <= 128:
					seen.add(name + ": closed")
				default:
					seen.add(fmt.Sprintf("%s: %d bytes", name, len(answer)))
					seen.gotIn()
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// exchange says something to a port and returns what it answers until it closes, for a
// second at most.
func exchange(addr string, text []byte) ([]byte, error) {
	conn, err := dialFrom("127.0.0.2", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(text); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = nil
	}
	return b, err
}
