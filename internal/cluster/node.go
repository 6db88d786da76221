package cluster

import "time"

// Device is one thing a worker can run on.
type Device struct {
	ID          string `json:"id"` // cpu:0, gpu:1
	Name        string `json:"name,omitempty"`
	Cores       int    `json:"cores,omitempty"`
	MemoryBytes int64  `json:"memory_bytes"`
}

// Node is the inventory of one dynamod, published under its agent's lease.
type Node struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"` // human name, unique on its host
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Incarnation string     `json:"incarnation"`
	InstanceID  InstanceID `json:"instance_id"`
	Version     string     `json:"version"`
	StartedAt   time.Time  `json:"started_at"`
	Devices     []Device   `json:"devices"`
	// Addresses of this node's servers; empty when it has none.
	RequestPlane string `json:"request_plane"`
	FrontendURL  string `json:"frontend_url,omitempty"`
	StatusURL    string `json:"status_url,omitempty"`
	// Embedded says which stores this node hosts for the cluster.
	EmbeddedEtcd bool `json:"embedded_etcd,omitempty"`
	EmbeddedNATS bool `json:"embedded_nats,omitempty"`
}
