package store_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/apiservertest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// The suite and the behaviors of pods over a kube-apiserver, each store in a namespace of
// its own; then its rights, and what happens while it is away.
func TestKubernetesAPIServer(t *testing.T) {
	server := apiservertest.Start(t)
	var n atomic.Int64
	namespaced := func(t *testing.T, kind string) string {
		return server.Namespace(t, fmt.Sprintf("%s-%d", kind, n.Add(1)))
	}
	t.Run("Served", func(t *testing.T) { served(t, server, namespaced) })
	t.Run("Rights", func(t *testing.T) { rights(t, server, namespaced(t, "rights")) })
	t.Run("Away", func(t *testing.T) {
		ns := namespaced(t, "away")
		outage(t, func() *kube.Client { return server.Client(t, ns, "") }, func() { server.Stop(t) }, func() { server.Resume(t) })
	})
}

// served runs, all at once, what needs the server to be there.
func served(t *testing.T, server *apiservertest.Server, namespaced func(*testing.T, string) string) {
	t.Run("Suite", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) store.Store {
			return openKubernetes(t, server.Client(t, namespaced(t, "suite"), ""), kube.Pod{})
		})
	})
	t.Run("Pods", func(t *testing.T) {
		t.Parallel()
		podBehaviors(t, func(t *testing.T) namespace {
			return namespace{t, server.Client(t, namespaced(t, "pods"), "")}
		})
	})
}

// rights has a service account of the chart's role do all that a store does, and compares
// what it used with what it may.
func rights(t *testing.T, server *apiservertest.Server, ns string) {
	user, may := server.Account(t, ns, false)
	account := server.Client(t, ns, user)
	seen := &recorder{next: account.HTTP.Transport, verbs: map[string]bool{}}
	account.HTTP.Transport = seen

	s := openKubernetes(t, account, pod("worker-0"))
	namespace{t, server.Client(t, ns, "")}.slice("one", map[string]bool{"worker-0": true})
	lease := grantIn(t, s)
	if _, err := s.Create(t.Context(), instanceKey(lease.ID), []byte(instance(lease.ID, "10.0.0.1:1")), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Put(t.Context(), "k", []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.NewRWLock(s, "lock").TryLock(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.List(t.Context(), "/services/"); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeLease(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "all verbs that the role allows are used", func() bool { return len(seen.used()) >= len(may) })
	if used := seen.used(); !maps.Equal(used, may) {
		t.Errorf("used %v, allowed %v", slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(may)))
	}
	elsewhere := server.Client(t, server.Namespace(t, ns+"-other"), user)
	if err := elsewhere.Probe(t.Context(), kube.Records); !kube.IsDenied(err) {
		t.Errorf("another namespace: %v", err)
	}
	if err := account.Probe(t.Context(), kube.Pods); !kube.IsDenied(err) {
		t.Errorf("pods in pod mode: %v", err)
	}
}

// recorder notes the verbs of requests.
type recorder struct {
	next  http.RoundTripper
	mu    sync.Mutex
	verbs map[string]bool
}

// RoundTrip implements [http.RoundTripper].
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(req.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/") // namespace, resource, name
	verbs := map[string][]string{http.MethodPost: {"create"}, http.MethodPatch: {"patch"}, http.MethodDelete: {"delete"}}[req.Method]
	switch {
	case req.Method == http.MethodGet && len(parts) == 3:
		verbs = []string{"get"}
	case req.Method == http.MethodGet && req.URL.Query().Get("watch") != "":
		verbs = []string{"watch"}
	case req.Method == http.MethodGet:
		verbs = []string{"list"}
	case strings.Contains(req.Header.Get("Content-Type"), "apply"):
		verbs = append(verbs, "create") // of an object that is not there yet
	}
	r.mu.Lock()
	for _, verb := range verbs {
		r.verbs[verb+" "+parts[1]] = true
	}
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

func (r *recorder) used() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.verbs)
}
