package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

func TestSessionsAreForgotten(t *testing.T) {
	now := time.Now()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	const ttl = 10 * time.Second
	s := newSessions()
	key := func(id string) sessionKey { return sessionKey{"m", id} }
	s.put(key("a"), 1, at(0), ttl)
	s.put(key("b"), 2, at(5), ttl)
	for _, tc := range []struct {
		key  sessionKey
		at   int
		want int
	}{
		{key("a"), 10, 1}, {key("a"), 11, 0}, {key("b"), 11, 2}, {key("c"), 5, 0}, {sessionKey{"other", "a"}, 5, 0},
	} {
		if got := s.find(tc.key, at(tc.at), ttl); int(got) != tc.want {
			t.Errorf("%v after %d s: at %d, want %d", tc.key, tc.at, got, tc.want)
		}
	}
	s.put(key("a"), 1, at(9), ttl) // used again
	if got := s.find(key("a"), at(19), ttl); got != 1 {
		t.Errorf("used again: at %d", got)
	}
	if len(s.at) != 2 || s.order.Len() != 2 {
		t.Errorf("%d sessions are kept, %d in order", len(s.at), s.order.Len())
	}
	s.forget(key("a"), 2)
	if got := s.find(key("a"), at(19), ttl); got != 1 {
		t.Errorf("another worker left: at %d", got)
	}
	s.forget(key("a"), 1)
	if got := s.find(key("a"), at(9), ttl); got != 0 {
		t.Errorf("its worker left: at %d", got)
	}
	s.put(key("c"), 3, at(30), ttl)
	if len(s.at) != 1 || s.order.Len() != 1 {
		t.Errorf("%d sessions are kept, one is younger than the TTL", len(s.at))
	}
	for i := range 2 * maxSessions {
		s.put(key(fmt.Sprint(i)), 4, at(31), ttl)
	}
	if len(s.at) != maxSessions || s.order.Len() != maxSessions || s.find(key("0"), at(31), ttl) != 0 || s.find(key(fmt.Sprint(2*maxSessions-1)), at(31), ttl) != 4 {
		t.Errorf("%d sessions are kept", len(s.at))
	}
}

// sessionRoute posts a request of a session and returns its route.
func (f *front) sessionRoute(t *testing.T, session string, more body) (told routeTold, status int, e envelope) {
	t.Helper()
	resp := f.do(http.MethodPost, "/v1/completions", reader(t, textBody(more)), "x-dynctl-route", "1", "x-dynamo-session-id", session)
	if resp.StatusCode != http.StatusOK {
		return told, resp.StatusCode, failureOf(t, resp)
	}
	if err := json.Unmarshal([]byte(resp.Header.Get("x-dynctl-route")), &told); err != nil {
		t.Fatal(err)
	}
	wholeAnswer(t, resp)
	return told, resp.StatusCode, e
}

// Requests of a session go to one worker, whether they name it by header or by body, and
// move where they must.
func TestSessionAffinity(t *testing.T) {
	for _, affinity := range []string{"off", AffinitySoft, AffinityHard} {
		t.Run(affinity, func(t *testing.T) {
			w := newWorld(t)
			fakes := map[string]*fake{}
			for i := range 3 {
				name := fmt.Sprintf("worker-%d", i+1)
				fakes[name] = w.fake(name, say("abc"))
			}
			s := routing()
			s.change(func(k *Settings) {
				k.Policy, k.Strategy = router.RoundRobin, protocol.StrategyDecodeFirst
				k.Session, k.Busy = SessionSettings{affinity, time.Minute}, router.BusyLimits{KVShare: 0.9}
			})
			f := w.routed(s, 0, 3)
			at := map[string]bool{}
			var last string
			for i := range 6 {
				var told routeTold
				if i%2 == 0 {
					told, _, _ = f.sessionRoute(t, "s", nil)
				} else {
					told, _, _ = f.sessionRoute(t, "", body{"nvext": body{"session_id": "s"}})
				}
				last = told.Worker
				at[last] = true
			}
			if want := map[string]int{"off": 3}[affinity]; len(at) != max(want, 1) {
				t.Fatalf("one session went to %v", at)
			}
			others := map[string]bool{}
			for range 6 {
				told, _, _ := f.sessionRoute(t, "", nil)
				others[told.Worker] = true
			}
			if len(others) != 3 {
				t.Errorf("requests without a session went to %v", others)
			}
			if affinity == "off" {
				return
			}
			f.full(fakes[last], 95)
			told, status, e := f.sessionRoute(t, "s", nil)
			if affinity == AffinityHard {
				if status != http.StatusTooManyRequests || !strings.Contains(e.Error.Message, "The worker of this session is busy") {
					t.Errorf("status %d, %+v", status, e)
				}
				if d := f.decisions.find("", 1)[0]; len(d.Candidates) != 3 || !strings.Contains(d.Candidates[1].Excluded+d.Candidates[2].Excluded, "the session is at "+last) {
					t.Errorf("decided %+v", d)
				}
			} else if status != http.StatusOK || told.Worker == last {
				t.Errorf("status %d, %+v, and %s is busy", status, told, last)
			}
			f.full(fakes[last], 10)
			if affinity == AffinitySoft { // it has moved, and stays there
				last = told.Worker
			}
			if told, _, _ := f.sessionRoute(t, "s", nil); told.Worker != last {
				t.Errorf("went to %s, want %s", told.Worker, last)
			}
			// The worker leaves: the session finds another one and stays there.
			fakes[last].vanish(t)
			patience.Until(t, "it is gone", func() bool { return len(f.workers.Instances()) == 2 })
			next, _, _ := f.sessionRoute(t, "s", nil)
			again, _, _ := f.sessionRoute(t, "s", nil)
			if next.Worker == last || next.Worker == "" || again.Worker != next.Worker {
				t.Errorf("after %s left it went to %q and %q", last, next.Worker, again.Worker)
			}
			// A request that names its worker gets it, and the session with it.
			for name, fk := range fakes {
				if name == last || name == next.Worker {
					continue
				}
				told, _, _ := f.sessionRoute(t, "s", body{"nvext": body{"decode_worker_id": fk.drt.ID()}})
				after, _, _ := f.sessionRoute(t, "s", nil)
				if told.Worker != name || after.Worker != name {
					t.Errorf("named %s: went to %q and then to %q", name, told.Worker, after.Worker)
				}
			}
		})
	}
}

// A session is free when its worker fails, whatever the affinity; a worker that has no room
// keeps it, and a hard session is refused then.
func TestSessionOfAWorkerThatFails(t *testing.T) {
	for kind, want := range map[requestplane.Kind]int{requestplane.KindDraining: 200, requestplane.KindUnavailable: 200, requestplane.KindOverloaded: 429} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			var broken atomic.Bool
			gen := func(name string) generator {
				return func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
					if broken.Load() && name == "worker-1" {
						return refuse(kind)(ctx, req, send)
					}
					return say("abc")(ctx, req, send)
				}
			}
			one := w.fake("worker-1", gen("worker-1"))
			w.fake("worker-2", gen("worker-2"))
			f := w.configured(func(c *Config) {
				c.Settings = func() Settings {
					return Settings{Policy: router.RoundRobin, RemoteTimeout: time.Second, Session: SessionSettings{AffinityHard, time.Minute}}
				}
			}).waitModel(2)
			if told, _, _ := f.sessionRoute(t, "s", body{"nvext": body{"decode_worker_id": one.drt.ID()}}); told.Worker != "worker-1" {
				t.Fatalf("went to %+v", told)
			}
			broken.Store(true)
			told, status, e := f.sessionRoute(t, "s", nil)
			if status != want || want == 200 && told.Worker != "worker-2" {
				t.Errorf("status %d, %+v %+v", status, told, e)
			}
		})
	}
	long := strings.Repeat("s", maxSessionID+1)
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	for _, session := range []string{long, ""} {
		_, status, e := f.sessionRoute(t, session, body{"nvext": body{"session_id": long}})
		if status != http.StatusBadRequest || !strings.Contains(e.Error.Message, "256 bytes") {
			t.Errorf("status %d, %+v", status, e)
		}
	}
}
