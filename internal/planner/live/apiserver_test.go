package live

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/apiservertest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
)

// The same over a kube-apiserver, as the service account of the chart: StatefulSets, a Deployment, and a custom
// resource with a scale.
func TestPodsOnAPIServer(t *testing.T) {
	server := apiservertest.Start(t)
	ns := server.Namespace(t, "planned")
	user, may := server.Account(t, ns, true)
	admin := server.Client(t, ns, "")
	labels := map[string]string{"app": "x"}
	for _, name := range []string{"dynctl-prefill", "dynctl-decode", "other"} {
		server.Create(t, "/apis/apps/v1/namespaces/"+ns+"/statefulsets", map[string]any{
			"metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"serviceName": "x", "selector": map[string]any{"matchLabels": labels}, "replicas": 2,
				"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "x"}}}},
			},
		})
	}
	things := kube.Resource{Group: "test.dev", Version: "v1", Plural: "things", Kind: "Thing"}
	whole := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	server.Create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", map[string]any{
		"metadata": map[string]any{"name": "things.test.dev"},
		"spec": map[string]any{
			"group": things.Group, "scope": "Namespaced", "names": map[string]any{"plural": things.Plural, "singular": "thing", "kind": things.Kind},
			"versions": []any{map[string]any{
				"name": things.Version, "served": true, "storage": true,
				"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{"replicas": map[string]any{"type": "integer"}}}, "status": whole}}},
				"subresources": map[string]any{"scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
			}},
		},
	})
	patience.Until(t, "the custom resource is served", func() bool { return admin.Probe(t.Context(), things) == nil })
	if err := admin.Create(t.Context(), things, map[string]any{"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": map[string]any{"name": "y"}, "spec": map[string]any{"replicas": 1}}, &kube.Object{}); err != nil {
		t.Fatal(err)
	}
	account := server.Client(t, ns, user)
	seen := &scaleVerbs{next: account.HTTP.Transport, verbs: map[string]bool{}}
	account.HTTP.Transport = seen
	cfg := Config{Log: slog.New(slog.DiscardHandler)}
	own := Targets{Prefill: target("dynctl-prefill"), Decode: target("dynctl-decode")}
	claimed := func(c *kube.Client, targets Targets) *pods {
		t.Helper()
		p, err := claimPods(t.Context(), cfg, c, targets, leading)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	first := claimed(account, own)
	second := claimed(account, own)
	for i, o := range first.objects {
		now := second.objects[i].scale
		if o.scale.Spec.Replicas != 2 || now.Spec.Replicas != 2 || now.Metadata.Version() <= o.scale.Metadata.Version() {
			t.Errorf("%s: %+v, then %+v", o.target, o.scale, now)
		}
		if err := first.order(t.Context(), o, 7); !kube.IsConflict(err) {
			t.Errorf("%s: the leader before writes: %v", o.target, err)
		}
	}
	plan := planner.Plan{Prefill: 0, Decode: 5}
	if err := second.follow(t.Context(), View{}, plan, 7); err != nil {
		t.Fatal(err)
	}
	if second.look(t.Context(), t0); second.unread != "" || second.hand != "" || second.objects[0].scale.Spec.Replicas != 0 || second.objects[1].scale.Spec.Replicas != 5 {
		t.Errorf("%q %q %+v", second.unread, second.hand, second.objects)
	}
	if err := second.order(t.Context(), second.objects[1], 4); err != nil {
		t.Errorf("a second order: %v", err)
	}

	var object struct {
		Metadata struct {
			Fields []struct {
				Manager string `json:"manager"`
			} `json:"managedFields"`
		} `json:"metadata"`
	}
	if err := admin.Get(t.Context(), second.objects[1].resource, "dynctl-decode", &object); err != nil {
		t.Fatal(err)
	}
	managers := 0
	for _, f := range object.Metadata.Fields {
		if strings.HasPrefix(f.Manager, "dynctl-planner-") {
			managers++
		}
	}
	if managers != 1 {
		t.Errorf("managers: %+v", object.Metadata.Fields)
	}

	// kubectl scale, and a controller's report, are seen.
	scale := "/apis/apps/v1/namespaces/" + ns + "/statefulsets/dynctl-decode"
	server.Do(t, http.MethodPatch, scale+"/scale", "application/merge-patch+json", map[string]any{"spec": map[string]any{"replicas": 3}}, nil)
	if err := second.order(t.Context(), second.objects[1], 6); !kube.IsConflict(err) {
		t.Errorf("over somebody else: %v", err)
	}
	if second.look(t.Context(), t0); second.hand != "Somebody else scaled statefulsets.apps/dynctl-decode from 4 to 3" {
		t.Errorf("%q", second.hand)
	}
	server.Do(t, http.MethodPatch, scale+"/status", "application/merge-patch+json", map[string]any{"status": map[string]any{"replicas": 5}}, nil)
	if err := second.order(t.Context(), second.objects[1], 6); !kube.IsConflict(err) {
		t.Errorf("over a report: %v", err)
	}
	if second.look(t.Context(), t0.Add(time.Second)); second.objects[1].scale.Pods() != 5 || !second.handAt.Equal(t0) {
		t.Errorf("%+v", second.objects[1].scale)
	}

	// The rights are those that are used, for these objects alone.
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(may)), func(s string) bool { return !strings.HasSuffix(s, "/scale") })
	if got := seen.used(); !slices.Equal(got, want) || len(want) != 2 {
		t.Errorf("used %v, allowed %v", got, want)
	}
	for what, tc := range map[string]struct {
		client *kube.Client
		target cluster.ScaleTarget
		denied bool
	}{
		"another object":    {account, target("other"), true},
		"no object":         {admin, target("none"), false},
		"another resource":  {account, cluster.ScaleTarget{Resource: "things", Group: "test.dev", Name: "y"}, true},
		"without a scale":   {admin, cluster.ScaleTarget{Resource: "controllerrevisions", Group: "apps", Name: "y"}, false},
		"an unknown group":  {admin, cluster.ScaleTarget{Resource: "things", Group: "none.dev", Name: "y"}, false},
		"a known group":     {account, cluster.ScaleTarget{Resource: "things", Group: "apps", Name: "y"}, false},
		"the rights of all": {admin, cluster.ScaleTarget{}, false},
	} {
		_, err := claimPods(t.Context(), cfg, tc.client, Targets{Decode: tc.target}, leading)
		if none := tc.target == (cluster.ScaleTarget{}); (err == nil) != none || kube.IsDenied(err) != tc.denied || !none && !strings.Contains(err.Error(), tc.target.Name) {
			t.Errorf("%s: %v", what, err)
		}
	}

	// A custom resource is scaled and fenced the same way.
	thing := Targets{Decode: cluster.ScaleTarget{Resource: "things", Group: "test.dev", Name: "y"}}
	a, b := claimed(admin, thing), claimed(admin, thing)
	if b.objects[0].scale.Metadata.Version() <= a.objects[0].scale.Metadata.Version() {
		t.Errorf("claimed: %+v, then %+v", a.objects[0].scale, b.objects[0].scale)
	}
	if err := a.order(t.Context(), a.objects[0], 4); !kube.IsConflict(err) {
		t.Errorf("the leader before writes: %v", err)
	}
	if err := b.follow(t.Context(), View{}, plan, 7); err != nil || b.objects[0].scale.Spec.Replicas != 5 || !strings.Contains(b.waits, "things.test.dev/y has 0 pods of 5") {
		t.Errorf("%+v %q %v", b.objects[0].scale, b.waits, err)
	}

	// The server is away in the middle, and back.
	server.Stop(t)
	err := second.order(t.Context(), second.objects[1], 6)
	if second.look(t.Context(), t0); err == nil || kube.IsRefused(err) || second.unread == "" {
		t.Errorf("away: %v, %q", err, second.unread)
	}
	server.Resume(t)
	patience.Until(t, "it is read again", func() bool { second.look(t.Context(), t0); return second.unread == "" })
	if err := second.order(t.Context(), second.objects[1], 6); err != nil || second.objects[1].scale.Spec.Replicas != 6 {
		t.Errorf("back: %+v %v", second.objects[1].scale, errors.Unwrap(err))
	}
}

// scaleVerbs notes the verbs of requests for scales.
type scaleVerbs struct {
	next  http.RoundTripper
	mu    sync.Mutex
	verbs map[string]bool
}

// RoundTrip implements [http.RoundTripper].
func (s *scaleVerbs) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, path, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		parts := strings.Split(path, "/") // namespace, resource, name, subresource
		s.mu.Lock()
		s.verbs[strings.ToLower(r.Method)+" "+parts[1]+"/"+strings.Join(parts[3:], "/")] = true
		s.mu.Unlock()
	}
	return s.next.RoundTrip(r)
}

func (s *scaleVerbs) used() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.verbs))
}
