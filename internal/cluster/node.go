package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Device is a device of a node that a worker can run on.
type Device struct {
	ID          string `json:"id"` // cpu:0, gpu:1
	Name        string `json:"name,omitempty"`
	Cores       int    `json:"cores,omitempty"`
	ISA         string `json:"isa,omitempty"` // instruction set of the kernels: "avx512 bf16"
	MemoryBytes int64  `json:"memory_bytes"`
}

// Kind returns the part of the id before the colon: "cpu" or "gpu".
func (d Device) Kind() string {
	kind, _, _ := strings.Cut(d.ID, ":")
	return kind
}

// Node is the inventory of one dynamod, published under its agent's lease.
type Node struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`                // human name, unique on its host
	Namespace   string     `json:"namespace,omitempty"` // the namespace whose workers it takes; empty means any
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Incarnation string     `json:"incarnation"`
	InstanceID  InstanceID `json:"instance_id"`
	Version     string     `json:"version"`
	StartedAt   time.Time  `json:"started_at"`
	Devices     []Device   `json:"devices"`
	// GPU lists the node's GPUs, or says why there are none; nil when the node does not
	// report.
	GPU *GPUReport `json:"gpu,omitempty"`
	// Roles lists the roles that this node prefers. The controller places a worker of
	// another role here only when no other node can take it. Empty means all roles.
	Roles []Role `json:"roles,omitempty"`
	// Addresses of this node's servers; empty when it has none.
	RequestPlane string `json:"request_plane"`
	FrontendURL  string `json:"frontend_url,omitempty"`
	StatusURL    string `json:"status_url,omitempty"`
	// Embedded says which stores this node hosts for the cluster.
	EmbeddedEtcd bool `json:"embedded_etcd,omitempty"`
	EmbeddedNATS bool `json:"embedded_nats,omitempty"`
	// Secret is the fingerprint of the secret that the node proves to others.
	Secret string `json:"secret,omitempty"`
	// Settings are the run-time settings that the node's own configuration sets, by name. They
	// count where the cluster sets none. Nil if the node does not tell.
	Settings map[string]NodeSetting `json:"settings"`
	// Alarms lists problems that need an operator's attention while the node still
	// serves, one sentence each.
	Alarms []string `json:"alarms,omitempty"`
}

// NodeSetting is a setting of a node's own configuration.
type NodeSetting struct {
	Value  string `json:"value"`  // as dynctl set takes it
	Origin string `json:"origin"` // file with line, variable or flag
}

// MemoryOf returns the memory in bytes that workers of a device can use. The CPU devices
// of a node share theirs, so that their memory adds up. 0 means unknown.
func (n Node) MemoryOf(device Device) (bytes int64) {
	if device.Kind() != "cpu" {
		return device.MemoryBytes
	}
	for _, d := range n.Devices {
		if d.Kind() == device.Kind() {
			bytes += d.MemoryBytes
		}
	}
	return bytes
}

// In reports whether the node takes workers of the namespace.
func (n Node) In(namespace string) bool { return n.Namespace == "" || n.Namespace == namespace }

// DeviceLabel returns a short label for one of the node's devices: "gpu0 H200" or "cpu0
// 32c". For a device that the node does not list, and for a nil node, it is made from the
// id.
func (n *Node) DeviceLabel(id string) string {
	short := strings.ReplaceAll(id, ":", "")
	if n == nil {
		return short
	}
	for _, d := range n.Devices {
		if d.ID != id {
			continue
		}
		if d.Kind() == "cpu" && d.Cores > 0 {
			return short + " " + strconv.Itoa(d.Cores) + "c"
		}
		if m := d.model(); m != "" {
			return short + " " + m
		}
	}
	return short
}

// model returns the word of the name that tells a maker's devices apart: the first one
// with a digit, such as the H100 of "NVIDIA H100 80GB HBM3" and the A100 of "NVIDIA
// A100-SXM4-80GB".
func (d Device) model() string {
	words := strings.Fields(d.Name)
	for _, w := range words {
		if strings.ContainsAny(w, "0123456789") {
			w, _, _ = strings.Cut(w, "-")
			return w
		}
	}
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// ISAs lists the instruction sets of the node's devices, each once.
func (n Node) ISAs() (out []string) {
	for _, d := range n.Devices {
		if d.ISA != "" && !slices.Contains(out, d.ISA) {
			out = append(out, d.ISA)
		}
	}
	return out
}

// Prefers reports whether the node prefers workers of the role.
func (n Node) Prefers(r Role) bool { return len(n.Roles) == 0 || slices.Contains(n.Roles, r) }
