package agent

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/host"
	"github.com/dynctl/dynctl/internal/undo"
)

// thisMachine reads memory and processors of this machine.
var thisMachine = host.Machine{Root: "/"}

// place says where a CPU device computes.
type place struct {
	cores int   // threads
	cpus  []int // they run on these only; nil for all that the process may use
	node  int   // NUMA node of its memory, negative: any
}

// placeDevices shares the processors among CPU devices. devices is their number, 0 for
// one per NUMA node, negative for none. cores is the number of cores in all, 0 for as many as can compute at
// the same time. A device never spans nodes unless there are fewer devices than nodes.
// Only several devices are bound to CPUs. A single device is not, so that the system can
// move its threads away from busy neighbors.
func placeDevices(p host.Processors, devices, cores int) ([]place, error) {
	if devices < 0 {
		return nil, nil
	}
	if cores == 0 {
		cores = p.Cores()
	}
	if devices == 0 {
		devices = min(len(p.Nodes), cores)
	}
	if devices > cores {
		return nil, fmt.Errorf("cpu.devices: %d devices need at least one core each, and there are %d cores", devices, cores)
	}
	nodes := p.Nodes
	if devices < len(nodes) {
		nodes = []host.NUMANode{{ID: -1, CPUs: p.CPUs()}}
	}
	places := make([]place, devices)
	for n, node := range nodes {
		here := share(devices, len(nodes), n) // devices of this node
		for i, next := 0, 0; i < here; i++ {
			own := share(len(node.CPUs), here, i)
			d := &places[n+i*len(nodes)]
			d.cpus, d.node = node.CPUs[next:next+own], node.ID
			next += own
		}
	}
	for i := range places {
		d := &places[i]
		d.cores = share(cores, devices, i)
		if devices == 1 || len(d.cpus) < d.cores { // nothing to gain, or more threads than CPUs
			d.cpus = nil
		}
		if devices == 1 {
			d.node = -1
		}
	}
	return places, nil
}

// share returns the size of the i-th of n equal shares of things. The first shares get
// the remainder.
func share(things, n, i int) int {
	part := things / n
	if i < things%n {
		part++
	}
	return part
}

// startDevices makes the CPU devices of the node: by default one per NUMA node, with all
// cores.
func (a *Agent) startDevices(back *undo.Stack) error {
	processors := thisMachine.Processors(host.AllowedCPUs())
	places, err := placeDevices(processors, a.cfg.CPU.Devices, a.cfg.CPU.Cores)
	if err != nil {
		return err
	}
	if most := processors.Cores(); a.cfg.CPU.Cores > most {
		a.log.Warn("more compute threads than processors: they will wait for each other", "cores", a.cfg.CPU.Cores, "processors", most)
	}
	leaveRoom(places)
	a.devices = map[string]computer{}
	for i, at := range places {
		id := fmt.Sprintf("cpu:%d", i)
		d, err := cpu.OpenDevice(id, cpu.DeviceOptions{
			Cores: at.cores, ISA: a.cfg.CPU.ISA, Activations: a.cfg.CPU.Activations, CPUs: at.cpus, Node: at.node,
		})
		if errors.Is(err, cpu.ErrActivations) {
			return fmt.Errorf("cpu.activations: %w", err)
		}
		if err != nil {
			return fmt.Errorf("cpu.isa: %w", err)
		}
		if reason := d.Warning(); reason != "" {
			a.log.Warn("device computes with less than the machine has", "device", id, "isa", d.ISA(), "reason", reason)
		}
		a.devices[id] = cpuDevice{d, a.log}
		a.nodeDevices = append(a.nodeDevices, cluster.Device{
			ID: id, Name: d.Name(), Cores: at.cores, ISA: d.ISA(), MemoryBytes: thisMachine.Memory().Most() / int64(len(places)),
		})
		back.Push("stop device "+id, func(context.Context) error { return d.Close() })
	}
	a.models = newModels(a)
	return nil
}

// leaveRoom raises GOMAXPROCS, so that the rest of the process can run while bound
// workers keep their processors.
func leaveRoom(places []place) {
	bound := 0
	for _, p := range places {
		if p.cpus != nil {
			bound += p.cores
		}
	}
	if want := bound + 1 + bound/16; bound > 0 && want > goruntime.GOMAXPROCS(0) {
		goruntime.GOMAXPROCS(want)
	}
}

func (a *Agent) describeDevices() string {
	var parts []string
	for _, d := range a.nodeDevices {
		parts = append(parts, d.ID+" "+d.Name)
	}
	return strings.Join(parts, ", ")
}

// describeISA names the instruction set that the CPU devices use; it is the same for all.
func (a *Agent) describeISA() string {
	for _, d := range a.nodeDevices {
		if d.ISA != "" {
			return d.ISA
		}
	}
	return "none"
}
