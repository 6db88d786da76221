// Package kubetest is a small API server for tests. It keeps objects in memory, with
// resource versions, conflicts, preconditions, selectors, watches, bookmarks and a history
// that can be cut. It knows no schemas, no authorization and no conversion, and its
// server-side apply knows one manager: tests against a real kube-apiserver are in package
// store and need the build tag kubernetes.
//
// Start with [New]. The package is for tests only.
package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/kube"
)

// Server is an API server.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	version  int64
	uids     int64
	objects  map[string]object // by path
	history  []event
	cut      int64         // versions up to this one are not in the history any more
	moved    chan struct{} // closed and replaced by each event
	broken   chan struct{} // closed and replaced by Break
	down     bool
	held     bool
	saved    map[string]object
	savedAt  int64
	requests map[string]int // by method and plural
	served   map[kube.Resource]bool
	denied   map[string]bool // methods with plurals, and "/scale"
}

type object = map[string]any

type event struct {
	version int64
	kind    string // ADDED, MODIFIED, DELETED
	list    string // path of the list
	object  object
	before  object // of MODIFIED, and nil otherwise
}

// Offline returns a server without a network: its clients are those of Direct.
func Offline() *Server {
	return &Server{version: 1000, objects: map[string]object{}, moved: make(chan struct{}), broken: make(chan struct{}), requests: map[string]int{}, served: map[kube.Resource]bool{}, denied: map[string]bool{}}
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	s := Offline()
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Break()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Client returns a client of a namespace.
func (s *Server) Client(namespace string) *kube.Client {
	return &kube.Client{HTTP: s.http.Client(), Server: s.http.URL, Namespace: namespace}
}

// Direct returns a client of a namespace that calls the server without a network, for tests in a bubble of
// time. before, if not nil, is called before each request.
func (s *Server) Direct(namespace string, before func(*http.Request)) *kube.Client {
	return &kube.Client{HTTP: &http.Client{Transport: direct{s, before}}, Server: "http://kubetest", Namespace: namespace}
}

type direct struct {
	s      *Server
	before func(*http.Request)
}

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.before != nil {
		d.before(r)
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil { // the caller has left
		return nil, err
	}
	return w.Result(), nil
}

// SetDown makes the server fail all requests, or answer again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Break()
	}
}

// Break ends all watches.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.broken)
	s.broken = make(chan struct{})
}

// Hold has watches tell nothing until release is called.
func (s *Server) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = false
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// Compact forgets the history: watches from before fail with 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.cut = nil, s.version
}

// Backup keeps the state for Restore.
func (s *Server) Backup() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.savedAt = maps.Clone(s.objects), s.version
}

// Restore goes back to the state of Backup.
func (s *Server) Restore() {
	s.mu.Lock()
	s.objects, s.version = s.saved, s.savedAt
	s.history, s.cut = nil, s.version
	s.mu.Unlock()
	s.Break()
}

// Requests returns how many requests of a method there were for a plural.
func (s *Server) Requests(method, plural string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method+" "+plural]
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, scaled := strings.CutSuffix(r.URL.Path, "/scale")
	list, name, ok := split(path)
	if !ok {
		s.discover(w, r.URL.Path)
		return
	}
	plural := list[strings.LastIndexByte(list, '/')+1:]
	if scaled {
		plural += "/scale"
	}
	s.mu.Lock()
	down, denied := s.down, s.denied[r.Method+" "+plural]
	s.requests[r.Method+" "+plural]++
	s.mu.Unlock()
	var body object
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			fail(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
	}
	switch {
	case down:
		fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the server is down")
	case denied:
		fail(w, http.StatusForbidden, "Forbidden", "cannot "+strings.ToLower(r.Method)+" resource "+plural)
	case scaled:
		s.scale(w, r, list, name, body)
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, list)
	case r.Method == http.MethodGet && name == "":
		s.list(w, r, list)
	case r.Method == http.MethodGet:
		s.mu.Lock()
		o := s.objects[list+"/"+name]
		s.mu.Unlock()
		answer(w, o)
	case r.Method == http.MethodPost:
		s.create(w, list, body)
	case r.Method == http.MethodPatch:
		s.patch(w, r.Header.Get("Content-Type"), list, name, body)
	case r.Method == http.MethodDelete:
		s.remove(w, list, name, body)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method)
	}
}

// split returns the path of the list and the name, if there is one.
func split(path string) (list, name string, ok bool) {
	parts := strings.Split(path, "/")
	i := slices.Index(parts, "namespaces")
	if i < 0 || len(parts) < i+3 || len(parts) > i+4 {
		return "", "", false
	}
	return strings.Join(parts[:i+3], "/"), strings.Join(parts[i+3:], ""), true
}

func answer(w http.ResponseWriter, o any) {
	if m, ok := o.(object); ok && m == nil {
		fail(w, http.StatusNotFound, "NotFound", "not found")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o) // whoever left needs no answer
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "code": code, "reason": reason, "message": message}) // as above
}

func meta(o object) object {
	m, _ := o["metadata"].(object)
	if m == nil {
		m = object{}
		o["metadata"] = m
	}
	return m
}

// change stores an object, or removes it if next is nil. The caller holds the lock.
func (s *Server) change(list, name string, next object) object {
	path := list + "/" + name
	before := s.objects[path]
	s.version++
	ev := event{version: s.version, list: list, kind: "MODIFIED", object: next, before: before}
	switch {
	case next == nil:
		ev.kind, ev.object = "DELETED", clone(before)
		ev.before = nil
		meta(ev.object)["resourceVersion"] = strconv.FormatInt(s.version, 10)
		delete(s.objects, path)
	default:
		next = clone(next)
		ev.object = next
		if before == nil {
			ev.kind = "ADDED"
			s.uids++
			meta(next)["uid"] = fmt.Sprintf("uid-%d", s.uids)
		}
		meta(next)["resourceVersion"] = strconv.FormatInt(s.version, 10)
		s.objects[path] = next
	}
	s.history = append(s.history, ev)
	close(s.moved)
	s.moved = make(chan struct{})
	return ev.object
}

func clone(o object) object {
	next := maps.Clone(o)
	if m, ok := o["metadata"].(object); ok {
		next["metadata"] = maps.Clone(m)
	}
	return next
}
