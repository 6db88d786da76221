package frontend

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/runtime"
)

// These benchmarks measure the frontend alone: its process has no worker and no client,
// both are in another one (see farSide). They report processor time of users and kernel,
// and objects that the frontend allocates:
//
//	us/token, allocs/token     of the frontend
//	all-us/token               of both processes
//
// The time includes the system calls, on this side of the connections.

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkToken has a worker whose engine steps: each step gives every stream a token,
// and the next begins when all clients have read theirs. Nothing can be written together.
// With burst, the worker sends as fast as it can.
func BenchmarkToken(b *testing.B) {
	for _, burst := range []bool{false, true} {
		for _, streams := range []int{1, 64, 256} {
			name := fmt.Sprintf("steps/streams=%d", streams)
			if burst {
				name = fmt.Sprintf("burst/streams=%d", streams)
			}
			b.Run(name, func(b *testing.B) {
				each := max(b.N/streams, 1)
				benchApart(b, farLoad{Streams: streams, Requests: 1, Tokens: each, Burst: burst, Prompt: 1}, "token", each*streams)
			})
		}
	}
}

// BenchmarkRequest has requests of one token: 8 clients send one after the other.
func BenchmarkRequest(b *testing.B) {
	for _, stream := range []bool{true, false} {
		for _, prompt := range []int{8, 1000, 10_000} {
			b.Run(fmt.Sprintf("stream=%v/prompt=%d", stream, prompt), func(b *testing.B) {
				each := max(b.N/8, 1)
				benchApart(b, farLoad{Streams: 8, Requests: each, Tokens: 1, Prompt: prompt, Burst: true, Whole: !stream}, "request", 8*each)
			})
		}
	}
}

// benchApart lets the other process put a load on the frontend, of n units.
func benchApart(b *testing.B, load farLoad, unit string, n int) {
	w := newWorld(b)
	w.c.Log = quiet
	far := startFar(b)
	w.network = func(c *runtime.Config) { c.Server, c.Client, c.AdvertiseAddr = far.server, far.client, far.addr }
	fk := w.fake("worker-1", nil, func(fk *fake) {
		fk.card.ContextLength = 1 << 20
		fk.card.Runtime.MaxNumSeqs, fk.card.Runtime.TotalKVBlocks = 1024, 1<<20 // all streams at a time
	})
	far.say(farCommand{Worker: fk.drt.ID().String()})
	f := w.frontend().waitModel(1)
	load.URL = f.URL()
	warm := load
	warm.Requests, warm.Tokens = min(load.Requests, 4), min(load.Tokens, 4)
	far.say(farCommand{Load: &warm})

	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	own := cpuTime()
	b.ResetTimer()
	theirs := far.say(farCommand{Load: &load}).CPU
	b.StopTimer()
	own = cpuTime() - own
	goruntime.ReadMemStats(&after)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n) }
	b.ReportMetric(per(own), "us/"+unit)
	b.ReportMetric(per(own+theirs), "all-us/"+unit)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/"+unit)
}

// farCommand is a line that tells the other process what to do. It answers each with a
// farAnswer.
type farCommand struct {
	Worker string   `json:"worker,omitempty"` // instance whose endpoints it answers
	Load   *farLoad `json:"load,omitempty"`
}

// farLoad are requests to a frontend.
type farLoad struct {
	URL      string `json:"url"`
	Streams  int    `json:"streams"`
	Requests int    `json:"requests"` // of each stream, one after the other
	Tokens   int    `json:"tokens"`
	Prompt   int    `json:"prompt"`
	Burst    bool   `json:"burst"`
	Whole    bool   `json:"whole"` // not streamed
}

type farAnswer struct {
	Addr  string        `json:"addr,omitempty"`
	CPU   time.Duration `json:"cpu"`
	Error string        `json:"error,omitempty"`
}

func (l *farLoad) body(stream int) []byte {
	prompt := make([]int, l.Prompt)
	for i := range prompt {
		prompt[i] = (i*7 + stream) % 250
	}
	prompt[0] = stream
	b, err := json.Marshal(textBody(body{"prompt": prompt, "max_tokens": l.Tokens, "stream": !l.Whole}))
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkWrite is one write of an event to a connection over loopback, which is the least
// that a token costs when it goes out alone. It has the kernel carry the bytes to the other
// side; reading them is not counted.
func BenchmarkWrite(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	to, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	from, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	const together = 50
	event, got := make([]byte, 200), make([]byte, 200*together)
	var writing time.Duration
	n := 0
	for ; n < b.N; n += together {
		begin := cpuTime()
		for range together {
			if _, err := to.Write(event); err != nil {
				b.Fatal(err)
			}
		}
		writing += cpuTime() - begin
		if _, err := io.ReadFull(from, got); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(writing.Nanoseconds())/1e3/float64(n), "us/write")
}
