package frontend

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
)

// workerRef names a worker in a request: by its name, or by its instance id in decimal or
// hexadecimal digits. Ids exceed 2^53, so that JavaScript and jq cannot keep them as numbers.
type workerRef struct {
	text string
	id   cluster.InstanceID // set by resolve
}

// maxInstance is the largest id of an instance, because ids are etcd leases.
const maxInstance = 1<<63 - 1

// maxWorkerRef bounds a reference, in bytes.
const maxWorkerRef = 256

// workerField reads a reference: an integer, or a string.
func workerField(v **workerRef) field {
	return func(name string, raw json.RawMessage) *apiError {
		ref := workerRef{}
		if json.Unmarshal(raw, &ref.text) != nil {
			var id *int64
			if integer(&id, 1, maxInstance)(name, raw) != nil {
				return wrongType(name, "the name or the instance id of a worker")
			}
			ref.text = strconv.FormatInt(*id, 10)
		}
		return setWorker(v, name, ref.text)
	}
}

func setWorker(v **workerRef, name, text string) *apiError {
	if text == "" || len(text) > maxWorkerRef {
		return wrongValue(name, "a worker is named by 1 to %d bytes", maxWorkerRef)
	}
	*v = &workerRef{text: text}
	return nil
}

// resolve finds the id. Names go before digits; what is neither is no worker's id.
func (r *workerRef) resolve(workers []cluster.Instance) {
	if r == nil {
		return
	}
	if i := slices.IndexFunc(workers, func(i cluster.Instance) bool { return i.Worker == r.text }); i >= 0 {
		r.id = workers[i].InstanceID
		return
	}
	if id, ok := cluster.ParseInstanceRef(r.text); ok && id <= maxInstance {
		r.id = id
	}
}

// hexID is an id as a text that every client can keep and send back.
func hexID(id cluster.InstanceID) string { return "0x" + id.String() }
