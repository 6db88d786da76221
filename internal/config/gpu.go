package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GPU says which GPUs the node offers as devices, and how they are used.
type GPU struct {
	// Devices are indexes in the order of the driver, groups of them such as 0+1, GPUsNone or
	// GPUsAll.
	Devices string `mapstructure:"devices"`
	// MemoryUtilization is the share of a GPU's memory that may be in use, by others, too.
	MemoryUtilization float64 `mapstructure:"memory_utilization"`
	// KVShare is the share of what is left that a worker takes for KV blocks.
	KVShare float64 `mapstructure:"kv_share"`
	// BatchInvariant makes a token's bits independent of what else is computed.
	BatchInvariant bool `mapstructure:"batch_invariant"`
	// PortableKernels uses no kernels that are for GPUs of one compute capability.
	PortableKernels bool `mapstructure:"portable_kernels"`
	// OverlapLaunches has kernels launched while those before them end.
	OverlapLaunches bool `mapstructure:"overlap_launches"`
}

// Names for GPUs without their indexes.
const (
	GPUsNone = "none"
	GPUsAll  = "all"
)

const maxGPU = 255

// Groups are the GPUs of each device that is named, one for each tensor-parallel rank, in the
// order of their first ones and each device once; all says that every GPU is a device.
func (g GPU) Groups() (groups [][]int, all bool, err error) {
	switch g.Devices {
	case GPUsNone, "":
		return nil, false, nil
	case GPUsAll:
		return nil, true, nil
	}
	used := map[int][]int{}
	for item := range strings.SplitSeq(g.Devices, ",") {
		var group []int
		for index := range strings.SplitSeq(item, "+") {
			n, err := strconv.Atoi(strings.TrimSpace(index))
			if err != nil || n < 0 || n > maxGPU {
				return nil, false, fmt.Errorf("%q is not %s, %s, indexes from 0 to %d such as 0,2, or groups of them such as 0+1,2+3", g.Devices, GPUsNone, GPUsAll, maxGPU)
			}
			group = append(group, n)
		}
		for _, n := range group {
			if other := used[n]; other != nil && !slices.Equal(other, group) {
				return nil, false, fmt.Errorf("%q has GPU %d in two devices: each belongs to one", g.Devices, n)
			}
			used[n] = group
		}
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return slices.CompactFunc(groups, slices.Equal[[]int]), false, nil
}
