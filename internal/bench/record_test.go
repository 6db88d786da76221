package bench

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/openai"
)

// Each way in which a server can fail has its kind, over real connections.
func TestKindsOfFailures(t *testing.T) {
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
		w.(http.Flusher).Flush()
	}
	handlers := map[string]http.HandlerFunc{
		"http-503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"http-400": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Too long.","type":"t"}}`)
		},
		KindTimeout: func(w http.ResponseWriter, r *http.Request) { begin(w); <-r.Context().Done() },
		KindCut:     func(w http.ResponseWriter, _ *http.Request) { begin(w); panic(http.ErrAbortHandler) },
		KindStream: func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			_, _ = io.WriteString(w, `data: {"error":{"message":"Lost.","type":"server_error"}}`+"\n\n")
		},
		KindWrong: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"empty": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		},
	}
	run := func(address string, timeout time.Duration) *Report {
		client, err := openai.New(address, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c := config(client.Chat)
		c.Concurrency, c.Conversations, c.Timeout = 1, 1, timeout
		return Run(t.Context(), c)
	}
	check := func(want, address, text string) {
		t.Helper()
		timeout := time.Minute
		if want == KindTimeout {
			timeout = 300 * time.Millisecond
		}
		r := run(address, timeout)
		if r.Failed != 1 || r.Errors[want] != 1 || !strings.Contains(r.ErrorTexts[want], text) || r.TTFT != nil {
			t.Errorf("want %s with %q: %v %q", want, text, r.Errors, r.ErrorTexts)
		}
	}
	texts := map[string]string{"http-400": "Too long", KindStream: "Lost", KindCut: "broke off", KindWrong: "text/plain", "empty": "no token", KindTimeout: "no complete answer in time"}
	for want, h := range handlers {
		srv := httptest.NewServer(h)
		name := want
		if want == "empty" {
			name = KindWrong
		}
		check(name, srv.URL, texts[want])
		srv.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	check(KindRefused, "http://"+l.Addr().String(), "connection refused")
	check(KindUnreachable, "http://no-such-host.invalid", "")
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // what the client thinks of it
	secure.StartTLS()
	defer secure.Close()
	check(KindCertificate, secure.URL, "no trust")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for want, got := range map[string]string{
		"": kindOf(t.Context(), nil), KindOther: kindOf(t.Context(), io.EOF), KindInterrupted: kindOf(stopped, context.Canceled),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// record is a request that was due at 1 s: first token after 310 ms, four tokens 40 ms apart,
// end at 450 ms.
func record() Record {
	at := func(millis int) time.Duration { return time.Second + time.Duration(millis)*time.Millisecond }
	return Record{
		Conversation: 3, Due: at(0), Sent: at(10), First: at(310), Last: at(430), End: at(450), WantInput: 100, WantOutput: 4,
		Input: 98, Output: 4, Cached: 64, Counted: true, Chunks: 4, Finish: "length",
		gaps: []gap{{40 * time.Millisecond, 1}, {40 * time.Millisecond, 1}, {40 * time.Millisecond, 1}},
	}
}

func TestSLO(t *testing.T) {
	for text, want := range map[string]bool{
		"ttft=310ms": true, "ttft=309ms": false, "itl=40ms": true, "itl=39ms": false, "tpot=40ms": true, "tpot=39.9ms": false, "e2e=450ms": true, "e2e=449ms": false,
		"ttft=1s,itl=40ms,e2e=1s": true, "ttft=1s, itl=1ms": false,
	} {
		s, err := ParseSLO(text)
		if err != nil || s.Met(record()) != want {
			t.Errorf("%s: met %t, %v", text, s.Met(record()), err)
		}
		if again, err := ParseSLO(s.String()); err != nil || again != s {
			t.Errorf("%s is written as %s", text, s)
		}
	}
	tight := SLO{TTFT: time.Second, ITL: 1, TPOT: 1}
	one := record()
	one.gaps, one.Output, one.Last = nil, 1, one.First
	if !tight.Met(one) {
		t.Error("an answer of one token has no time between tokens")
	}
	failed := record()
	failed.Kind = KindCut
	if (SLO{}).Met(failed) {
		t.Error("a failure is good")
	}
	for text, want := range map[string]string{
		"": "not one of ttft", "speed=1s": "not one of ttft", "ttft": "invalid duration", "ttft=0s": "above 0", "itl=-1ms": "above 0", "ttft=1s,ttft=2s": "twice", "ttft=1s,": "not one of",
	} {
		if _, err := ParseSLO(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Goodput by hand: of four requests, one is too late and one fails.
func TestGoodput(t *testing.T) {
	tl := newTally(10, 0)
	slo := SLO{TTFT: 400 * time.Millisecond}
	late, failed, stopped := record(), record(), record()
	late.First += time.Second
	failed.Kind, stopped.Kind = "http-503", KindInterrupted
	for _, r := range []Record{record(), record(), late, failed, stopped} {
		tl.add(r, slo.Met(r))
	}
	g := tl.result(10*time.Second, slo).Goodput
	if g.Good != 2 || g.Share != 0.5 || g.RequestsPerS != 0.2 || g.SLO != "ttft=400ms" {
		t.Errorf("%+v", g)
	}
}

// Kinds that a server invents without end are counted together.
func TestKindsAreBounded(t *testing.T) {
	tl := newTally(10, 0)
	for i := range 100 {
		r := record()
		r.Finish = fmt.Sprint("reason ", i)
		tl.add(r, true)
	}
	if len(tl.finish) != kindLimit+1 || tl.finish[KindOther] != 100-kindLimit || tl.finish["reason 3"] != 1 {
		t.Errorf("%d kinds, %d others", len(tl.finish), tl.finish[KindOther])
	}
	for range pointLimit {
		tl.add(record(), true)
	}
	if len(tl.points) != pointLimit {
		t.Errorf("%d points", len(tl.points))
	}
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	c := NewCSV(&b)
	c.Add(record())
	c.Add(Record{Conversation: 4, Turn: 1, Due: time.Second, Sent: time.Second, End: 2 * time.Second, WantInput: 5, WantOutput: 6, Kind: "http-503", Error: "No worker, \"yet\""})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := `conversation,turn,due_s,sent_s,first_s,last_s,end_s,late_ms,ttft_ms,itl_ms,tpot_ms,e2e_ms,want_input,input,cached,want_output,output,counted,chunks,finish,failure,text
3,0,1.000000,1.010000,1.310000,1.430000,1.450000,10.000,310.000,40.000,40.000,450.000,100,98,64,4,4,true,4,length,,
4,1,1.000000,1.000000,,,2.000000,0.000,,,,,5,0,0,6,0,false,0,,http-503,"No worker, ""yet"""
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll(); err != nil || len(rows) != 3 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	full := NewCSV(fullDisk{})
	full.Add(record())
	if full.Close() == nil {
		t.Error("a full disk is no error")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
