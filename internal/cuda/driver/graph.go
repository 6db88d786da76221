package driver

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// captureRelaxed lets a capture end on another thread than it began, since goroutines change
// threads, and lets others allocate and free memory meanwhile, such as a worker that starts
// beside this one.
const captureRelaxed = 2

// StreamBeginCapture implements Driver.
func (d *CUDA) StreamBeginCapture(device int, stream uint64) error {
	if err := handle("stream", stream); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call("cuStreamBeginCapture", device, dynlib.Call(d.fn.beginCapture, uintptr(stream), captureRelaxed))
}

// StreamEndCapture implements Driver.
func (d *CUDA) StreamEndCapture(device int, stream uint64) (graph uint64, err error) {
	if err := handle("stream", stream); err != nil {
		return 0, err
	}
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	var recorded uintptr // CUgraph, of which the executable graph is made
	if err := d.call("cuStreamEndCapture", device, dynlib.Call(d.fn.endCapture, uintptr(stream), uintptr(unsafe.Pointer(&recorded)))); err != nil {
		return 0, err
	}
	err = d.call("cuGraphInstantiate", device, dynlib.Call(d.fn.graphInstantiate, uintptr(unsafe.Pointer(&graph)), recorded, 0))
	if e := d.call("cuGraphDestroy", device, dynlib.Call(d.fn.graphDestroy, recorded)); err == nil {
		err = e
	}
	return graph, err
}

// GraphLaunch implements Driver.
func (d *CUDA) GraphLaunch(device int, graph, stream uint64) error {
	if err := handle("graph", graph); err != nil {
		return err
	}
	if err := handle("stream", stream); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call("cuGraphLaunch", device, dynlib.Call(d.fn.graphLaunch, uintptr(graph), uintptr(stream)))
}

// GraphDestroy implements Driver.
func (d *CUDA) GraphDestroy(device int, graph uint64) error {
	return d.simple("cuGraphExecDestroy", device, d.fn.graphExecDestroy, "graph", graph)
}
