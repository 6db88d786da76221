package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Scale is the scale subresource of an object (autoscaling/v1). Its metadata is the object's: the version
// changes with whatever changes the object.
type Scale struct {
	Object
	Spec struct {
		Replicas int `json:"replicas"` // wanted
	} `json:"spec"`
	Status struct {
		Replicas int `json:"replicas"` // there are, ready or not
	} `json:"status"`
}

// Pods returns how many pods the object has or is about to have: those that are wanted, or those that there
// are where these are more.
func (s Scale) Pods() int { return max(s.Spec.Replicas, s.Status.Replicas) }

// scalePart is the name of the subresource.
const scalePart = "scale"

// Scalable returns the resource of a target in the version that the server prefers of those in which it has
// a scale. The error says what the server does not know. Whether there is such an object, [Client.Scale] says.
func (c *Client) Scalable(ctx context.Context, t cluster.ScaleTarget) (Resource, error) {
	type version struct {
		Version string `json:"version"`
	}
	var group struct {
		Versions  []version `json:"versions"`
		Preferred version   `json:"preferredVersion"`
	}
	switch err := c.do(ctx, request{method: http.MethodGet, about: "/apis/" + t.Group}, &group); {
	case IsNotFound(err):
		return Resource{}, fmt.Errorf("the API server does not know the group %s: %w", t.Group, err)
	case err != nil:
		return Resource{}, fmt.Errorf("ask for the versions of the group %s: %w", t.Group, err)
	}
	known := false
	others := slices.DeleteFunc(group.Versions, func(v version) bool { return v == group.Preferred })
	for _, v := range append([]version{group.Preferred}, others...) {
		var list struct {
			Resources []struct {
				Name string `json:"name"`
				Kind string `json:"kind"`
			} `json:"resources"`
		}
		if err := c.do(ctx, request{method: http.MethodGet, about: "/apis/" + t.Group + "/" + url.PathEscape(v.Version)}, &list); err != nil {
			return Resource{}, fmt.Errorf("ask for the resources of %s/%s: %w", t.Group, v.Version, err)
		}
		r, scales := Resource{Group: t.Group, Version: v.Version, Plural: t.Resource}, false
		for _, found := range list.Resources {
			switch found.Name {
			case t.Resource:
				r.Kind = found.Kind
			case t.Resource + "/" + scalePart:
				scales = true
			}
		}
		if known = known || r.Kind != ""; r.Kind != "" && scales {
			return r, nil
		}
	}
	if known {
		return Resource{}, fmt.Errorf("%s.%s have no scale subresource", t.Resource, t.Group)
	}
	return Resource{}, fmt.Errorf("the API server does not know %s.%s", t.Resource, t.Group)
}

// Scale reads the scale of an object.
func (c *Client) Scale(ctx context.Context, r Resource, name string) (s Scale, err error) {
	err = c.do(ctx, request{method: http.MethodGet, resource: r, name: name, part: scalePart}, &s)
	return s, err
}

// ClaimScale makes a manager the one who says how many pods an object has, with the number of a scale that was
// read. If the object has changed since, the error is a conflict. A manager that was not changes the object's
// version, although the number stays.
func (c *Client) ClaimScale(ctx context.Context, r Resource, now Scale, manager string) (Scale, error) {
	return c.writeScale(ctx, r, now, now.Spec.Replicas, applyPatch, url.Values{"fieldManager": {manager}, "force": {"true"}})
}

// SetScale says how many pods an object shall have whose scale was read. If the object has changed since, the
// error is a conflict.
func (c *Client) SetScale(ctx context.Context, r Resource, now Scale, manager string, replicas int) (Scale, error) {
	// Servers (1.35) do not apply another number to a custom resource, but merge it.
	return c.writeScale(ctx, r, now, replicas, mergePatch, url.Values{"fieldManager": {manager}})
}

func (c *Client) writeScale(ctx context.Context, r Resource, now Scale, replicas int, content string, query url.Values) (s Scale, err error) {
	body := map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]string{"name": now.Metadata.Name, "resourceVersion": now.Metadata.ResourceVersion},
		"spec":     map[string]int{"replicas": replicas},
	}
	err = c.do(ctx, request{method: http.MethodPatch, resource: r, name: now.Metadata.Name, part: scalePart, query: query, content: content, body: body}, &s)
	return s, err
}

// Ordinal returns the number of a pod of a StatefulSet, which begins with 0; ok is false for other pods.
// Kubernetes removes the pods with the highest numbers.
func Ordinal(t cluster.ScaleTarget, pod string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(pod, t.Name+"-")
	if t.Resource != "statefulsets" || t.Group != "apps" || !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && strconv.Itoa(n) == digits && n >= 0
}
