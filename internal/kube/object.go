package kube

import "strconv"

// Resource names a kind of objects in the API.
type Resource struct{ Group, Version, Plural, Kind string }

// The resources that the store uses.
var (
	WorkerMetadata = Resource{"nvidia.com", "v1alpha1", "dynamoworkermetadatas", "DynamoWorkerMetadata"}
	Records        = Resource{"dynctl.dev", "v1alpha1", "records", "Record"}
	EndpointSlices = Resource{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"}
	Pods           = Resource{"", "v1", "pods", "Pod"}
)

// APIVersion returns the group and version, as objects name them.
func (r Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// String returns plural and group, as kubectl names them.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

func (r Resource) path(namespace, name string) string {
	root := "/apis/"
	if r.Group == "" {
		root = "/api/"
	}
	p := root + r.APIVersion() + "/namespaces/" + namespace + "/" + r.Plural
	if name != "" {
		p += "/" + name
	}
	return p
}

// Meta is the metadata of an object.
type Meta struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Generation      int64             `json:"generation,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Owners          []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference has Kubernetes delete an object when its owner is gone.
type OwnerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         bool   `json:"controller"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion"`
}

// Version returns the resource version as a number. Kubernetes promises since 1.35 that
// versions of one resource are numbers that grow; they have been since the beginning. 0
// means that it is none.
func (m Meta) Version() int64 {
	v, err := strconv.ParseInt(m.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Object is any object of which only the metadata matters.
type Object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   Meta   `json:"metadata"`
}

// Meta returns the object's metadata.
func (o *Object) Meta() *Meta { return &o.Metadata }
