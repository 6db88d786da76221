package protocol

import "github.com/dynctl/dynctl/internal/cluster"

// DepartedRequest is sent by a worker that has left discovery. It asks a frontend to
// confirm that it no longer chooses the worker. The frontend answers with one Departed as
// soon as that is so.
type DepartedRequest struct {
	InstanceID cluster.InstanceID `json:"instance_id"`
}

// Departed confirms that the frontend chooses the instance for no further request. A
// request that it sent earlier may still arrive.
type Departed struct {
	InstanceID cluster.InstanceID `json:"instance_id"`
}
