package frontend

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// benchWorld is a frontend and a worker that answers at once, with the network's
// request plane between them.
func benchWorld(b *testing.B, gen generator) (*front, *fake) {
	w := newWorld(b)
	w.c.Log = slog.New(slog.DiscardHandler)
	key := handshake.RandomKey()
	server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: key})
	if err != nil {
		b.Fatal(err)
	}
	client := requestplane.NewClient(requestplane.ClientConfig{Key: key})
	b.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	w.network = func(c *runtime.Config) { c.Server, c.Client, c.AdvertiseAddr = server, client, server.Addr() }
	fk := w.fake("worker-1", gen, func(fk *fake) { fk.card.ContextLength = 1 << 20 })
	return w.frontend().waitModel(1), fk
}

// babble generates max_tokens tokens and asks before each of them.
func babble(before func(prompt uint32)) generator {
	ids := tokens("benchmarks ")
	return func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for n := range req.Stop.MaxTokens {
			o := protocol.EngineOutput{TokenIDs: ids[n%len(ids) : n%len(ids)+1]}
			if n == 0 {
				o.Timing = &protocol.Timing{Worker: "worker-1", Prefill: "local"}
			}
			if n+1 == req.Stop.MaxTokens {
				o.Finish = protocol.FinishLength
			}
			before(req.TokenIDs[0])
			if err := send(o); err != nil {
				return err
			}
		}
		return nil
	}
}

// BenchmarkStreamedTokens measures the whole path of streamed tokens: worker, request
// plane, frontend, HTTP and a client that reads, all in this process. One operation
// is one token.
func BenchmarkStreamedTokens(b *testing.B) {
	for _, streams := range []int{1, 64} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			f, _ := benchWorld(b, babble(func(uint32) {}))
			b.ReportAllocs()
			b.ResetTimer()
			each := max(b.N/streams, 1)
			var wg sync.WaitGroup
			for range streams {
				wg.Go(func() {
					for left := each; left > 0; left -= 2000 {
						resp, err := f.tryPost(b.Context(), "/v1/chat/completions", chatBody(body{"stream": true, "max_tokens": min(left, 2000)}))
						if err != nil {
							b.Error(err)
							return
						}
						n, err := io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != http.StatusOK || n < int64(100*min(left, 2000)) {
							b.Errorf("status %d, %d bytes, %v", resp.StatusCode, n, err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(each*streams)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkTokenByToken lets the worker send a token only when the client has read
// the one before, so that nothing is written together. With one stream it is the
// time of a token from the worker to the client.
func BenchmarkTokenByToken(b *testing.B) {
	for _, streams := range []int{1, 64} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			read := make([]chan struct{}, streams) // by the first token of the prompt
			for i := range read {
				read[i] = make(chan struct{}, 1)
			}
			f, _ := benchWorld(b, babble(func(prompt uint32) { <-read[prompt] }))
			b.ResetTimer()
			each := max(b.N/streams, 1)
			var wg sync.WaitGroup
			for i := range streams {
				wg.Go(func() {
					read[i] <- struct{}{}
					resp, err := f.tryPost(b.Context(), "/v1/completions", textBody(body{"prompt": []int{i}, "stream": true, "max_tokens": each}))
					if err != nil {
						b.Error(err)
						return
					}
					defer resp.Body.Close()
					events := 0
					for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
						if bytes.HasPrefix(lines.Bytes(), []byte("data: {")) {
							if events++; events < each {
								read[i] <- struct{}{}
							}
						}
					}
					if events != each {
						b.Errorf("%d events, want %d", events, each)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(each*streams)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkFirstToken compares the time to the first token of a request sent to the
// worker directly with that of one sent through the frontend: the difference is
// what the frontend adds.
func BenchmarkFirstToken(b *testing.B) {
	b.Run("direct", func(b *testing.B) {
		f, fk := benchWorld(b, babble(func(uint32) {}))
		req := protocol.PreprocessedRequest{Model: testModel, ModelSum: testDigest, TokenIDs: tokens("Hi"), Stop: protocol.StopConditions{MaxTokens: 1}}
		inst := fk.served.Instance()
		for i := range b.N {
			var out protocol.EngineOutput
			stream, err := f.workers.Call(b.Context(), inst, fmt.Sprint(i), nil, req)
			if err == nil {
				err = stream.Recv(b.Context(), &out)
				stream.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("frontend", func(b *testing.B) {
		f, _ := benchWorld(b, babble(func(uint32) {}))
		raw := []byte(`{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"stream":true}`)
		for range b.N {
			resp, err := f.client.Post(f.URL()+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// BenchmarkAppendDelta is the encoding of one event.
func BenchmarkAppendDelta(b *testing.B) {
	a := (&chatRequest{params: params{model: testModel}}).answer(nil, 1700000000, []*choice{{}})
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = a.appendDelta(buf[:0], delta{text: " token"})
	}
}
