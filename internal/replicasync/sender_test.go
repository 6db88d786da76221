package replicasync

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

var errLook = errors.New("only looking")

// counted is what a Load counts on the workers 1 to 3.
func counted(t testing.TB, l *router.Load) (seen []router.Candidate) {
	t.Helper()
	_, _, err := l.Choose(router.Request{BlockSize: 16, Hashes: []uint64{1, 2, 3}}, router.View{Candidates: []router.Candidate{{ID: 1}, {ID: 2}, {ID: 3}}}, func(_ router.Request, v router.View) (router.Decision, error) {
		seen = v.Candidates
		return router.Decision{}, errLook
	})
	if !errors.Is(err, errLook) {
		t.Fatal(err)
	}
	return seen
}

// sender is a frontend whose outbox is read by hand.
type sender struct {
	t     testing.TB
	loads map[cluster.Role]*router.Load
	out   *outbox
	open  []*router.Flight
	rng   *rand.Rand
}

func testMetrics() *metrics.ReplicaSync { return newCounts().ReplicaSync }

// counts are metrics that can be read.
type counts struct {
	*metrics.ReplicaSync
	registry *metrics.Registry
}

func newCounts() counts {
	r := metrics.NewRegistry()
	return counts{metrics.NewReplicaSync(r, func() float64 { return 0 }), r}
}

func (c counts) value(t testing.TB, series string) (v float64) { return reading(t, c.registry, series) }

// reading returns the value of a series, by its name after "replica_".
func reading(t testing.TB, r *metrics.Registry, series string) (v float64) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for line := range strings.Lines(w.Body.String()) {
		if rest, ok := strings.CutPrefix(line, "dynamo_frontend_replica_"+series+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}

func loads() map[cluster.Role]*router.Load {
	return map[cluster.Role]*router.Load{cluster.RoleDecode: router.NewLoad(), cluster.RolePrefill: router.NewLoad()}
}

func newSender(t testing.TB, seed uint64) *sender {
	s := &sender{t: t, loads: loads(), out: newOutbox(testMetrics().Lost, time.Now()), rng: rand.New(rand.NewPCG(seed, 1))}
	for phase, l := range s.loads {
		l.Observe(func(c cluster.FlightChange) {
			c.Phase = phase
			s.out.put(c)
		})
	}
	return s
}

// begin sends a prompt of whole blocks to a worker.
func (s *sender) begin(phase cluster.Role, worker cluster.InstanceID, hashes ...uint64) *router.Flight {
	s.t.Helper()
	r := router.Request{PromptTokens: 16*len(hashes) + 1, BlockSize: 16, Hashes: hashes}
	_, f, err := s.loads[phase].Choose(r, router.View{Candidates: []router.Candidate{{ID: worker}}}, func(_ router.Request, v router.View) (router.Decision, error) {
		return router.Decision{Chosen: v.Candidates[0]}, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// work changes something.
func (s *sender) work() {
	switch n := len(s.open); {
	case n < 5 || n < 40 && s.rng.IntN(2) == 0:
		phase := []cluster.Role{cluster.RoleDecode, cluster.RolePrefill}[s.rng.IntN(2)]
		s.open = append(s.open, s.begin(phase, cluster.InstanceID(1+s.rng.IntN(3)), [][]uint64{{1, 2, 3}, {1, 2}, {1, 7}, nil}[s.rng.IntN(4)]...))
	case s.rng.IntN(3) == 0:
		s.open[s.rng.IntN(n)].Prefilled()
	case s.rng.IntN(2) == 0:
		s.open[s.rng.IntN(n)].Grow(s.rng.IntN(6)) // so few that others are told of each
	default:
		i := s.rng.IntN(n)
		s.open[i].End()
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// state is what the frontend counts by itself.
func state(t testing.TB, all map[cluster.Role]*router.Load) [2][]router.Candidate {
	return [2][]router.Candidate{counted(t, all[cluster.RoleDecode]), counted(t, all[cluster.RolePrefill])}
}

func (s *sender) page(id cluster.InstanceID) []protocol.FlightsPage {
	changes, epoch, next := s.out.snapshot()
	var pages []protocol.FlightsPage
	for {
		n := min(len(changes), 3) // several pages
		pages = append(pages, protocol.FlightsPage{Frontend: id, Epoch: epoch, Next: next, Changes: changes[:n]})
		if changes = changes[n:]; len(changes) == 0 {
			return pages
		}
	}
}
