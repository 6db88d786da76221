package host

import (
	"cmp"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processors are the logical CPUs that this process may use.
type Processors struct {
	// Nodes lists the NUMA nodes with CPUs that this process may use, at least one. If
	// the system reports no nodes, there is one with ID -1.
	Nodes []NUMANode
	// Quota is the CPU time that the control groups (version 2) grant, in CPUs; 0 means
	// no limit.
	Quota float64
}

// NUMANode is a group of CPUs and the memory next to them.
type NUMANode struct {
	ID   int
	CPUs []int // ascending
}

// CPUs returns the CPUs of all nodes.
func (p Processors) CPUs() (all []int) {
	for _, n := range p.Nodes {
		all = append(all, n.CPUs...)
	}
	return all
}

// Cores returns how many threads can compute at the same time: one for each CPU, fewer if
// the quota grants less, at least one.
func (p Processors) Cores() int {
	n := len(p.CPUs())
	if p.Quota > 0 {
		n = min(n, int(math.Ceil(p.Quota)))
	}
	return max(n, 1)
}

// Processors reads the CPUs of the machine. allowed lists those that this process may run
// on; see [AllowedCPUs].
func (m Machine) Processors(allowed []int) Processors {
	p := Processors{Quota: m.quota()}
	rest := slices.Clone(allowed)
	dirs, _ := filepath.Glob(filepath.Join(m.Root, "/sys/devices/system/node/node[0-9]*")) // the pattern is well formed
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		list, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			continue
		}
		node := NUMANode{ID: id}
		for _, cpu := range parseCPUs(string(list)) {
			if i, ok := slices.BinarySearch(rest, cpu); ok {
				node.CPUs, rest = append(node.CPUs, cpu), slices.Delete(rest, i, i+1)
			}
		}
		if len(node.CPUs) > 0 {
			p.Nodes = append(p.Nodes, node)
		}
	}
	slices.SortFunc(p.Nodes, func(a, b NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	switch {
	case len(p.Nodes) == 0:
		p.Nodes = []NUMANode{{ID: -1, CPUs: rest}}
	case len(rest) > 0: // CPUs that no node lists
		last := &p.Nodes[len(p.Nodes)-1]
		last.CPUs = append(last.CPUs, rest...)
		slices.Sort(last.CPUs)
	}
	return p
}

// quota returns the smallest limit of the control groups, in CPUs; 0 means no limit.
func (m Machine) quota() (least float64) {
	for at := m.group(); ; at = path.Dir(at) {
		b, err := os.ReadFile(filepath.Join(m.Root, "/sys/fs/cgroup", at, "cpu.max"))
		if words := strings.Fields(string(b)); err == nil && len(words) == 2 { // "max 100000" or "150000 100000"
			time, _ := strconv.ParseFloat(words[0], 64)
			period, _ := strconv.ParseFloat(words[1], 64)
			if time > 0 && period > 0 && (least == 0 || time/period < least) {
				least = time / period
			}
		}
		if at == "/" {
			return least
		}
	}
}

// maxCPU bounds the CPU numbers that are accepted from files.
const maxCPU = 1 << 16

// parseCPUs reads a list like "0-3,8,10-11". It ignores malformed parts.
func parseCPUs(list string) (cpus []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last >= maxCPU {
			continue
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// firstCPUs returns the CPUs 0 to n-1.
func firstCPUs(n int) []int {
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}
