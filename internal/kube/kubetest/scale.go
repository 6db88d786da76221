package kubetest

import (
	"maps"
	"net/http"
	"strings"

	"github.com/dynctl/dynctl/internal/kube"
)

// Serve makes the server know a resource, for those who ask what there is. scaled says that its objects have a
// scale.
func (s *Server) Serve(r kube.Resource, scaled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[r] = scaled
}

// Deny makes the server refuse a method for a plural, such as "PATCH statefulsets/scale", or admit it again.
func (s *Server) Deny(what string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[what] = denied
}

// discover answers what a group has, or a version of it.
func (s *Server) discover(w http.ResponseWriter, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, version, whole := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/")
	versions, resources := []object{}, []object{}
	for r, scaled := range s.served {
		if r.Group != group || whole && r.Version != version {
			continue
		}
		versions = append(versions, object{"version": r.Version})
		resources = append(resources, object{"name": r.Plural, "kind": r.Kind})
		if scaled {
			resources = append(resources, object{"name": r.Plural + "/scale", "kind": "Scale"})
		}
	}
	switch {
	case s.down:
		fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the server is down")
	case len(versions) == 0:
		fail(w, http.StatusNotFound, "NotFound", "no such path")
	case whole:
		answer(w, object{"resources": resources})
	default:
		answer(w, object{"versions": versions, "preferredVersion": versions[0]})
	}
}

// scale reads or changes the scale of an object. As in a real server, a number that another manager applies makes
// another version of the object, and one that is merged does so where it is another one.
func (s *Server) scale(w http.ResponseWriter, r *http.Request, list, name string, body object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[list+"/"+name]
	if now == nil {
		fail(w, http.StatusNotFound, "NotFound", name+" not found")
		return
	}
	if r.Method == http.MethodPatch {
		if version, ok := meta(body)["resourceVersion"]; ok && version != meta(now)["resourceVersion"] {
			fail(w, http.StatusConflict, "Conflict", "the object has been modified")
			return
		}
		next := clone(now)
		spec, _ := now["spec"].(object)
		wanted, _ := body["spec"].(object)
		spec = maps.Clone(spec)
		spec["replicas"] = wanted["replicas"]
		next["spec"] = spec
		if r.Header.Get("Content-Type") == "application/apply-patch+yaml" {
			meta(next)["managedFields"] = r.URL.Query().Get("fieldManager")
		}
		now = s.changeIfOther(list, name, now, next)
	}
	field := func(part string) object {
		o, _ := now[part].(object)
		if n, ok := o["replicas"]; ok {
			return object{"replicas": n}
		}
		return object{}
	}
	answer(w, object{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta(now), "spec": field("spec"), "status": field("status")})
}
