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
	total := memInfo("MemTotal")
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && limit > 0 && (total == 0 || limit < total) {
			total = limit
		}
	}
	return total
}

// availableMemory is what can still be allocated without swapping, in bytes.
func availableMemory() int64 { return memInfo("MemAvailable") }

func memInfo(key string) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), key+":"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
