package kube_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
)

var sets = kube.Resource{Group: "apps", Version: "v1", Plural: "statefulsets", Kind: "StatefulSet"}

// The number of pods is set by whoever has seen the object as it is; another manager makes another object of
// it, the same one does not.
func TestScale(t *testing.T) {
	server := kubetest.New(t)
	server.Serve(sets, true)
	for name, c := range map[string]*kube.Client{"network": server.Client("a"), "direct": server.Direct("b", nil)} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"replicas": 2, "other": "stays"}, "status": map[string]any{"replicas": 3}}
			if err := c.Create(t.Context(), sets, object, &kube.Object{}); err != nil {
				t.Fatal(err)
			}
			r, err := c.Scalable(t.Context(), cluster.ScaleTarget{Resource: "statefulsets", Group: "apps", Name: "x"})
			if err != nil || r != sets {
				t.Fatalf("%+v %v", r, err)
			}
			first, err := c.Scale(t.Context(), r, "x")
			if err != nil || first.Spec.Replicas != 2 || first.Status.Replicas != 3 || first.Pods() != 3 {
				t.Fatalf("%+v %v", first, err)
			}
			claimed, err := c.ClaimScale(t.Context(), r, first, "one")
			if err != nil || claimed.Metadata.Version() <= first.Metadata.Version() {
				t.Errorf("another manager: %+v %v", claimed, err)
			}
			if again, err := c.ClaimScale(t.Context(), r, claimed, "one"); err != nil || again.Metadata.ResourceVersion != claimed.Metadata.ResourceVersion {
				t.Errorf("the same one: %+v %v", again.Metadata, err)
			}
			if _, err := c.ClaimScale(t.Context(), r, first, "two"); !kube.IsConflict(err) {
				t.Errorf("a claim of an old version: %v", err)
			}
			if _, err := c.SetScale(t.Context(), r, first, "two", 9); !kube.IsConflict(err) {
				t.Errorf("an old version: %v", err)
			}
			if s, err := c.SetScale(t.Context(), r, claimed, "one", 0); err != nil || s.Spec.Replicas != 0 || s.Pods() != 3 {
				t.Errorf("%+v %v", s, err)
			}
			var now struct {
				Spec map[string]any `json:"spec"`
			}
			if err := c.Get(t.Context(), r, "x", &now); err != nil || now.Spec["other"] != "stays" || now.Spec["replicas"] != 0.0 {
				t.Errorf("%v %v", now.Spec, err)
			}
			server.Deny("PATCH statefulsets/scale", true)
			defer server.Deny("PATCH statefulsets/scale", false)
			if _, err := c.SetScale(t.Context(), r, claimed, "one", 1); !kube.IsDenied(err) {
				t.Errorf("without the right: %v", err)
			}
			if _, err := c.Scale(t.Context(), r, "y"); !kube.IsNotFound(err) || strings.Contains(err.Error(), "crds") {
				t.Errorf("no such object: %v", err)
			}
		})
	}
}

// What cannot be scaled is named.
func TestScalable(t *testing.T) {
	server := kubetest.New(t)
	server.Serve(sets, true)
	server.Serve(kube.Resource{Group: "apps", Version: "v1", Plural: "controllerrevisions", Kind: "ControllerRevision"}, false)
	server.Serve(kube.Resource{Group: "x.dev", Version: "v1", Plural: "things", Kind: "Thing"}, false)
	server.Serve(kube.Resource{Group: "x.dev", Version: "v1beta1", Plural: "things", Kind: "Thing"}, true)
	for text, want := range map[string]string{
		"statefulsets.apps/x": "", "things.x.dev/x": "", "controllerrevisions.apps/x": "controllerrevisions.apps have no scale subresource",
		"nothings.apps/x": "does not know nothings.apps", "things.y.dev/x": "does not know the group y.dev",
	} {
		target, err := cluster.ParseScaleTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := server.Client("a").Scalable(t.Context(), target)
		if want == "" && (err != nil || r.Kind == "" || r.Version == "v1" != (r.Group == "apps")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v %v", text, r, err)
		}
	}
	server.SetDown(true)
	if _, err := server.Client("a").Scalable(t.Context(), cluster.ScaleTarget{Resource: "statefulsets", Group: "apps"}); err == nil || kube.IsNotFound(err) {
		t.Errorf("away: %v", err)
	}
	if n := server.Requests(http.MethodGet, "statefulsets"); n != 0 {
		t.Errorf("%d objects were read", n)
	}
}

func TestOrdinal(t *testing.T) {
	set, other := cluster.ScaleTarget{Resource: "statefulsets", Group: "apps", Name: "d"}, cluster.ScaleTarget{Resource: "deployments", Group: "apps", Name: "d"}
	for pod, want := range map[string]int{"d-0": 0, "d-12": 12, "d": -1, "d-": -1, "d-01": -1, "d--1": -1, "e-1": -1, "d-a-1": -1, "d-+1": -1} {
		if n, ok := kube.Ordinal(set, pod); ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d %t", pod, n, ok)
		}
	}
	if _, ok := kube.Ordinal(other, "d-0"); ok {
		t.Error("pods of Deployments have no numbers")
	}
}
