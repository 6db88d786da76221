package agent

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// totalMemory is the memory this process may use, in bytes: that of the machine or
// of its cgroup (version 2), whichever is less. 0 means unknown.
func totalMemory() int64 {
	return smaller(memInfo("MemTotal"), cgroup("memory.max"))
}

// availableMemory is what can still be allocated without swapping, in bytes: that of
// the machine or what its cgroup leaves, whichever is less. 0 means unknown.
func availableMemory() int64 {
	free := memInfo("MemAvailable")
	limit := cgroup("memory.max")
	if limit == 0 {
		return free
	}
	// Pages of files that nobody used lately go first when memory is short.
	left := limit - cgroup("memory.current") + lineOf("/sys/fs/cgroup/memory.stat", "inactive_file ")
	return smaller(free, max(left, 1))
}

// smaller returns the smaller of two numbers, where 0 means unknown.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// cgroup reads a number of this process's memory cgroup; 0 means unknown or none.
func cgroup(file string) int64 {
	b, err := os.ReadFile("/sys/fs/cgroup/" + file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return max(n, 0)
}

// memInfo returns a line of /proc/meminfo in bytes.
func memInfo(key string) int64 { return lineOf("/proc/meminfo", key+":") << 10 }

// lineOf returns the number in the line that begins with prefix, 0 if there is none.
func lineOf(path, prefix string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), prefix); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n
		}
	}
	return 0
}
