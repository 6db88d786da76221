package dynamo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/dynctl/dynctl/dynamo"
	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/metrics"
)

// httpFrontend is the frontend of a local cluster.
type httpFrontend struct {
	url  string
	stop func()
}

func startFrontend(l *dynamo.Local) *httpFrontend {
	ctx, cancel := context.WithCancel(context.Background())
	r, err := l.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	f, err := frontend.New(ctx, frontend.Config{
		Runtime: r.Inner(), Node: "node-1", Host: "127.0.0.1", BodyLimit: 1 << 20, MigrationLimit: 3,
		Settings: func() frontend.Settings { return frontend.Settings{Policy: "least-loaded"} },
		Metrics:  metrics.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	return &httpFrontend{f.URL(), func() {
		cancel()
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
		if err := r.Close(context.Background()); err != nil {
			log.Fatal(err)
		}
	}}
}

// post sends a body and returns the answer, of whatever status.
func post(url string, body any) (status int, answer []byte, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// chat returns what a model answers, or what went wrong. It waits until the model is there.
func (f *httpFrontend) chat(model, text string) string {
	return chat(f.url, model, text)
}

func chat(url, model, text string) string {
	body := map[string]any{"model": model, "messages": []any{map[string]string{"role": "user", "content": text}}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, answer, err := post(url+"/v1/chat/completions", body)
		if status == http.StatusNotFound && time.Now().Before(deadline) || status == http.StatusServiceUnavailable && time.Now().Before(deadline) {
			continue
		}
		var a struct {
			Choices []struct {
				Message struct{ Content string }
			}
		}
		if err != nil || status != http.StatusOK || json.Unmarshal(answer, &a) != nil || len(a.Choices) != 1 {
			return fmt.Sprintf("status %d: %s, %v", status, answer, err)
		}
		return a.Choices[0].Message.Content
	}
}
