package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
)

// rememberer is a model behind a frontend, with workers 1 and 2 for prefill and 3 and 4
// for decode. It answers from what it was told, unless KV was lost on the way.
type rememberer struct {
	forgets map[string]int    // "1 3", "local 3": how many answers are wrong, -1 for all
	falls   map[string]string // who prefills instead; "local" for the decode worker
	mute    bool              // tells nothing about workers
	dull    bool              // answers nothing

	mu    sync.Mutex
	asked int
}

var doorAsked = regexp.MustCompile(`What is the code of door (\d+)\?`)

func (m *rememberer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q openai.Request
	_ = json.NewDecoder(r.Body).Decode(&q)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	p, d := q.NVExt.PrefillWorkerID, q.NVExt.DecodeWorkerID
	ran := openai.Ran{Workers: &openai.Workers{DecodeID: d, Decode: fmt.Sprint("worker-", d)}, Timing: &openai.RanTiming{Prefill: "local", PrefillWhy: "forced"}}
	at := fmt.Sprint("local ", d)
	if q.NVExt.Prefill == "remote" {
		p = cmp.Or(p, 2)
		at = fmt.Sprint(p, " ", d)
		ran.Workers.PrefillID, ran.Workers.Prefill = p, fmt.Sprint("worker-", p)
		ran.Timing = &openai.RanTiming{Prefill: "remote", PrefillWay: map[uint64]string{1: "pull", 2: "queue"}[p]}
	}
	switch by := m.falls[at]; by {
	case "":
	case "local":
		ran.Workers.PrefillID, ran.Workers.Prefill, ran.Timing = 0, "", &openai.RanTiming{Prefill: "local", PrefillWhy: "remote prefill timed out"}
	default:
		ran.Workers.Prefill = by
	}
	text := q.Messages[0].Content
	door := doorAsked.FindStringSubmatch(text)[1]
	answer := regexp.MustCompile(`The code of door ` + door + ` is \d{4}\.`).FindString(text)
	if n := m.forgets[at]; n != 0 {
		m.forgets[at] = n - 1
		answer = "The code of door " + door + " is unknown."
	}
	if m.dull {
		answer = "I see."
	}
	extension, _ := json.Marshal(ran)
	if m.mute {
		extension = []byte("null")
	}
	clitest.Streams(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"nvext\":%s}\n\ndata: [DONE]\n\n", clitest.Quoted(answer), extension))(w, r)
}

func recallWorkers(prefill, decode int) (out []cluster.Worker) {
	for i := range prefill + decode {
		role := cluster.RolePrefill
		if i >= prefill {
			role = cluster.RoleDecode
		}
		id := i + 1 + 2 - prefill // decode workers are 3 and 4
		out = append(out, cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: fmt.Sprint("worker-", id), InstanceID: cluster.InstanceID(id), Role: role, State: cluster.StateReady}})
	}
	return out
}

// talk returns a client of a frontend that answers as h does, until the test ends.
func talk(t *testing.T, h http.Handler) *openai.Client {
	t.Helper()
	f := httptest.NewServer(h)
	t.Cleanup(f.Close)
	c, err := openai.New(f.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// found compares findings, each a name and its status, with those that are wanted; one of them
// must say text.
func found(t *testing.T, findings []judge.Finding, want, text string) {
	t.Helper()
	var got, texts []string
	for _, f := range findings {
		got, texts = append(got, f.Name+" "+f.Status), append(texts, f.Found)
		if f.Group != groupRecall || f.Status == judge.Fail && f.Fix == "" {
			t.Errorf("%+v", f)
		}
	}
	if s := strings.Join(got, ", "); s != want || !strings.Contains(strings.Join(texts, "\n"), text) {
		t.Errorf("got\n%s\nwant\n%s\nfound\n%s", s, want, strings.Join(texts, "\n"))
	}
}

func TestRecallCheck(t *testing.T) {
	for _, tc := range []struct {
		name    string
		model   *rememberer
		prefill int
		want    string // status of every check
		text    string // of the worst
		asked   int
	}{
		{
			name: "well", prefill: 2, asked: 8,
			want: "recall-local worker-3 ok, recall worker-3 ok, recall worker-1 worker-3 ok, recall worker-2 worker-3 ok, " +
				"recall-local worker-4 ok, recall worker-4 ok, recall worker-1 worker-4 ok, recall worker-2 worker-4 ok",
			text: "worker-3 knows what worker-2 has read (over shm, way queue, ttft ",
		},
		{
			name: "a small model errs", prefill: 1, asked: 6 + 2, model: &rememberer{forgets: map[string]int{"2 3": 2}},
			want: "recall-local worker-3 ok, recall worker-3 ok, recall worker-2 worker-3 ok, recall-local worker-4 ok, recall worker-4 ok, recall worker-2 worker-4 ok",
		},
		{
			name: "damaged between two workers", prefill: 2, asked: 8 + 3, model: &rememberer{forgets: map[string]int{"1 4": -1}},
			want: "recall-local worker-3 ok, recall worker-3 ok, recall worker-1 worker-3 ok, recall worker-2 worker-3 ok, " +
				"recall-local worker-4 ok, recall worker-4 ok, recall worker-1 worker-4 fail, recall worker-2 worker-4 ok",
			text: "worker-4 cannot answer about a prompt that worker-1 prefilled: the KV blocks arrived damaged (over tcp, way pull, ttft ",
		},
		{
			name: "one worker computes wrong", prefill: 1, asked: 2 + 3 + 2, model: &rememberer{forgets: map[string]int{"local 3": -1}},
			want: "recall-local worker-3 fail, recall-local worker-4 ok, recall worker-4 ok, recall worker-2 worker-4 ok",
			text: "worker-3 answers wrong even without a transfer, other workers do not",
		},
		{
			name: "a model that cannot", prefill: 1, asked: 2 * recallTries, model: &rememberer{dull: true},
			want: "recall-local worker-3 skip, recall-local worker-4 skip", text: "tiny cannot show it: it does not answer a question about its prompt without a transfer either",
		},
		{
			name: "prefilled locally", prefill: 2, asked: 8, model: &rememberer{falls: map[string]string{"1 3": "local", "1 4": "worker-2"}},
			want: "recall-local worker-3 ok, recall worker-3 ok, recall worker-1 worker-3 fail, recall worker-2 worker-3 ok, " +
				"recall-local worker-4 ok, recall worker-4 ok, recall worker-1 worker-4 fail, recall worker-2 worker-4 ok",
			text: "worker-1 failed, worker-2 prefilled in its place",
		},
		{name: "aggregated", asked: 2, want: "recall-local worker-3 ok, recall-local worker-4 ok, recall-remote skip", text: "no prefill worker serves: nothing is transferred"},
		{name: "a frontend that does not tell", prefill: 1, asked: 2, model: &rememberer{mute: true},
			want: "recall-local worker-3 skip, recall-local worker-4 skip", text: "the frontend does not report which workers answered"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.model
			if m == nil {
				m = &rememberer{}
			}
			r := recallCheck{timeout: time.Minute, model: "tiny", c: talk(t, m), paths: func(_ context.Context, role cluster.Role) map[string][]cluster.Path {
				if role == cluster.RolePrefill {
					return map[string][]cluster.Path{"worker-2": {{From: "worker-2", To: "worker-3", Transport: "shm"}}}
				}
				return map[string][]cluster.Path{"worker-4": {{From: "worker-4", To: "worker-1", Transport: "tcp"}}}
			}}
			found(t, r.run(t.Context(), recallWorkers(tc.prefill, 2)), tc.want, tc.text)
			if m.asked != tc.asked {
				t.Errorf("%d questions, want %d", m.asked, tc.asked)
			}
		})
	}
}

// What frontends refuse, and their silence, are no wrong answers.
func TestRecallCheckWithoutAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		h          http.HandlerFunc
	}{
		{"silent", "no answer in time", clitest.Hangs("The code")},
		{"busy", "No worker (status 503)", clitest.Refuses(503, "1", "", "No worker.")},
		{"broken", "the answer broke off", clitest.Streams("data: {}\n\n")},
	} {
		f := clitest.NewFrontend(t, tc.h)
		c, err := openai.New(f.URL, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := recallCheck{timeout: time.Minute, model: "tiny", c: c}
		if tc.name == "silent" {
			r.timeout = 200 * time.Millisecond
		}
		found := r.run(t.Context(), recallWorkers(1, 1))
		if len(found) != 1 || found[0].Status != judge.Fail || !strings.Contains(found[0].Found, tc.text) || found[0].Fix == "" {
			t.Errorf("%s: %+v", tc.name, found)
		}
	}
	r := recallCheck{timeout: time.Second, model: "tiny"}
	workers := recallWorkers(1, 1)
	workers[1].Role = cluster.RoleEncode // answers no questions
	if found := r.run(t.Context(), workers); len(found) != 1 || found[0].Status != judge.Skip || found[0].Found != "no decode worker serves" {
		t.Errorf("no decode worker: %+v", found)
	}
}
