package kube

// Labels that a Service, or in container mode a pod, needs so that its pods count. The
// EndpointSlices of a Service have its labels.
const (
	LabelBackend = "nvidia.com/dynamo-discovery-backend" // "kubernetes"
	LabelEnabled = "nvidia.com/dynamo-discovery-enabled" // "true"
	// readySelector is what Dynamo selects by in effect; set both.
	readySelector = LabelEnabled + "=true"
)

// Ready is an EndpointSlice or a pod: it says which objects count.
type Ready struct {
	Object
	Endpoints []struct {
		Conditions struct {
			Ready *bool `json:"ready"`
		} `json:"conditions"`
		Target *struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"endpoints"`
	Status struct {
		Containers []struct {
			Name  string `json:"name"`
			Ready bool   `json:"ready"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// ReadyIn returns the resource and the selector that say what is ready in a mode.
func ReadyIn(mode string) (Resource, string) {
	if mode == ModeContainer {
		return Pods, readySelector
	}
	return EndpointSlices, readySelector
}

// Workers returns the names of the DynamoWorkerMetadata objects that r declares ready
// (true) or not ready.
func (r *Ready) Workers() map[string]bool {
	found := map[string]bool{}
	for _, e := range r.Endpoints {
		if e.Target != nil && e.Target.Kind == Pods.Kind {
			found[e.Target.Name] = found[e.Target.Name] || e.Conditions.Ready != nil && *e.Conditions.Ready
		}
	}
	for _, c := range r.Status.Containers {
		found[containerObject(r.Metadata.Name, c.Name)] = c.Ready
	}
	return found
}
