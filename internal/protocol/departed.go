package protocol

import "github.com/dynctl/dynctl/internal/cluster"

// DepartedRequest is what a worker that has left discovery asks frontends: whether they
// have taken notice. They answer with one Departed as soon as they have.
type DepartedRequest struct {
	InstanceID cluster.InstanceID `json:"instance_id"`
}

// Departed says that a frontend chooses the instance for no request any more. One that it
// has chosen before may still be on its way.
type Departed struct {
	InstanceID cluster.InstanceID `json:"instance_id"`
}
