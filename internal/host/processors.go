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
	// Nodes are the NUMA nodes with CPUs that this process may use, at least one; a
	// system that tells nothing of nodes has one, with ID -1.
	Nodes []NUMANode
	// Quota is how many CPUs' worth of time the control groups (version 2) grant, 0:
	// no limit.
	Quota float64
}

// NUMANode is a group of CPUs and the memory next to them.
type NUMANode struct {
	ID   int
	CPUs []int // ascending
}

// CPUs are those of all nodes.
func (p Processors) CPUs() (all []int) {
	for _, n := range p.Nodes {
		all = append(all, n.CPUs...)
	}
	return all
}

// Cores is how many threads can compute at the same time: one for each CPU, fewer
// where a quota grants less time than that, at least one.
func (p Processors) Cores() int {
	n := len(p.CPUs())
	if p.Quota > 0 {
		n = min(n, int(math.Ceil(p.Quota)))
	}
	return max(n, 1)
}

// Processors reads which CPUs there are; allowed are those that this process may run
// on, see [AllowedCPUs].
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
	case len(rest) > 0: // of no node that is told
		last := &p.Nodes[len(p.Nodes)-1]
		last.CPUs = append(last.CPUs, rest...)
		slices.Sort(last.CPUs)
	}
	return p
}

// quota is the smallest of the limits of the control groups, in CPUs.
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

// maxCPU bounds the numbers of CPUs that are read from files.
const maxCPU = 1 << 16

// parseCPUs reads a list like "0-3,8,10-11". What is not a list adds nothing.
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

// firstCPUs are CPUs 0 to n-1.
func firstCPUs(n int) []int {
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}
