package requestplane_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// tokens sends N outputs of one token each.
func tokens(_ context.Context, req *requestplane.Request, send func(any) error) error {
	var n int
	if err := req.Decode(&n); err != nil {
		return err
	}
	out := protocol.EngineOutput{TokenIDs: []uint32{0}}
	for i := range n {
		out.TokenIDs[0] = uint32(i)
		if err := send(&out); err != nil {
			return err
		}
	}
	return nil
}

func benchPlane(b *testing.B) (requestplane.Client, string) {
	s := listen(b, requestplane.ServerConfig{})
	if _, err := s.Handle("1/tokens", tokens); err != nil {
		b.Fatal(err)
	}
	return newClient(b, requestplane.ClientConfig{}), s.Addr() + "/1/tokens"
}

// BenchmarkTCPUnary measures one request with one item, over loopback.
func BenchmarkTCPUnary(b *testing.B) {
	c, addr := benchPlane(b)
	ctx := b.Context()
	for b.Loop() {
		if n, err := read(ctx, c, addr, 1); n != 1 || err != io.EOF {
			b.Fatalf("%d items, %v", n, err)
		}
	}
}

// BenchmarkTCPUnaryParallel measures requests with one item from many callers.
func BenchmarkTCPUnaryParallel(b *testing.B) {
	c, addr := benchPlane(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if n, err := read(b.Context(), c, addr, 1); n != 1 || err != io.EOF {
				b.Errorf("%d items, %v", n, err)
				return
			}
		}
	})
}

// BenchmarkTCPStream measures items of one token on concurrent streams of one
// connection, encoded and decoded on both sides.
func BenchmarkTCPStream(b *testing.B) {
	for _, streams := range []int{1, 64} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			c, addr := benchPlane(b)
			results := make(chan error, streams)
			each := max(1, b.N/streams)
			b.ResetTimer()
			for range streams {
				go func() {
					n, err := read(b.Context(), c, addr, each)
					if n == each && err == io.EOF {
						err = nil
					}
					results <- err
				}()
			}
			for range streams {
				if err := <-results; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(streams*each)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// BenchmarkTCPSteps simulates the steps of an engine: one item for each of 64 running
// requests per step, and the next step when all have arrived. Items of one stream cannot
// be combined.
func BenchmarkTCPSteps(b *testing.B) {
	const streams = 64
	steps := make([]chan struct{}, streams)
	for i := range steps {
		steps[i] = make(chan struct{}, 1)
	}
	s := listen(b, requestplane.ServerConfig{})
	_, err := s.Handle("1/steps", func(ctx context.Context, req *requestplane.Request, send func(any) error) error {
		var i int
		if err := req.Decode(&i); err != nil {
			return err
		}
		for range steps[i] {
			if err := send(&protocol.EngineOutput{TokenIDs: []uint32{uint32(i)}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	c := newClient(b, requestplane.ClientConfig{})
	arrived := make(chan error, streams)
	for i := range streams {
		st, err := c.Call(b.Context(), s.Addr()+"/1/steps", "r", nil, i)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for {
				var out protocol.EngineOutput
				if err := st.Recv(b.Context(), &out); err != nil {
					return
				}
				arrived <- nil
			}
		}()
	}
	for b.Loop() {
		for i := range steps {
			steps[i] <- struct{}{}
		}
		for range steps {
			<-arrived
		}
	}
	b.ReportMetric(float64(b.N*streams)/b.Elapsed().Seconds(), "items/s")
	for i := range steps {
		close(steps[i])
	}
}

// BenchmarkTCPCancel measures from Close of a stream to the handler's context.
func BenchmarkTCPCancel(b *testing.B) {
	s := listen(b, requestplane.ServerConfig{})
	stopped := make(chan struct{})
	_, err := s.Handle("1/hold", func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send(1); err != nil {
			return err
		}
		<-ctx.Done()
		stopped <- struct{}{}
		return context.Cause(ctx)
	})
	if err != nil {
		b.Fatal(err)
	}
	c := newClient(b, requestplane.ClientConfig{})
	var total time.Duration
	for b.Loop() {
		st, err := c.Call(b.Context(), s.Addr()+"/1/hold", "r", nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := st.Recv(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		st.Close()
		<-stopped
		total += time.Since(begin)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/cancel")
}

// BenchmarkTCPLarge measures one large item, as a body of KV metadata may be.
func BenchmarkTCPLarge(b *testing.B) {
	s := listen(b, requestplane.ServerConfig{})
	if _, err := s.Handle("1/large", func(_ context.Context, req *requestplane.Request, send func(any) error) error {
		return send(requestplane.Raw(req.Body))
	}); err != nil {
		b.Fatal(err)
	}
	c := newClient(b, requestplane.ClientConfig{})
	body := make(requestplane.Raw, 4<<20)
	b.SetBytes(int64(2 * len(body)))
	for b.Loop() {
		st, err := c.Call(b.Context(), s.Addr()+"/1/large", "r", nil, body)
		if err != nil {
			b.Fatal(err)
		}
		var got requestplane.Raw
		if err := st.Recv(b.Context(), &got); err != nil || len(got) != len(body) {
			b.Fatalf("%d bytes, %v", len(got), err)
		}
		st.Close()
	}
}

func read(ctx context.Context, c requestplane.Client, addr string, n int) (int, error) {
	st, err := c.Call(ctx, addr, "r", nil, n)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	var out protocol.EngineOutput
	for i := 0; ; i++ {
		if err := st.Recv(ctx, &out); err != nil {
			return i, err
		}
	}
}
