package kube

import (
	"errors"
	"fmt"
)

// Modes of discovery: what a DynamoWorkerMetadata object stands for.
const (
	ModePod       = "pod"       // a pod that is ready in an EndpointSlice
	ModeContainer = "container" // a container that is ready
)

// mainContainer is the container whose object has the name of its pod.
const mainContainer = "main"

// Pod says where this process runs. The zero Pod stands for a process outside of pods,
// such as dynctl on a laptop.
type Pod struct {
	Name, Namespace, UID string
	Mode                 string // ModePod if empty
	Container            string // its name, for ModeContainer
}

// In reports whether the process runs in a pod.
func (p Pod) In() bool { return p.Name != "" }

// Check returns an error if what is known of the pod is not enough.
func (p Pod) Check() error {
	switch {
	case p.Mode != "" && p.Mode != ModePod && p.Mode != ModeContainer:
		return fmt.Errorf("mode of discovery %q: expected %s or %s", p.Mode, ModePod, ModeContainer)
	case p.In() && p.UID == "":
		return errors.New("the pod's name is set, but not its uid: set POD_UID from metadata.uid")
	case p.In() && p.Mode == ModeContainer && p.Container == "":
		return errors.New("the mode of discovery is container, but the container's name is not set: set CONTAINER_NAME")
	}
	return nil
}

// Object returns the name of this process's DynamoWorkerMetadata object.
func (p Pod) Object() string {
	if p.Mode == ModeContainer {
		return containerObject(p.Name, p.Container)
	}
	return p.Name
}

func containerObject(pod, container string) string {
	if container == mainContainer {
		return pod
	}
	return pod + "-" + container
}

// owner returns the reference that has Kubernetes delete an object with the pod.
func (p Pod) owner(controller bool) OwnerReference {
	return OwnerReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: controller}
}

// Owners returns the owners of an object that ends with the pod; nil outside of pods.
func (p Pod) Owners() []OwnerReference {
	if !p.In() {
		return nil
	}
	return []OwnerReference{p.owner(false)}
}
