package bench

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/host"
)

// cpuModel returns the processor's name, or "" if the system does not report it.
func cpuModel() string { return procField("/proc/cpuinfo", "model name") }

// totalMemory returns how much memory of the machine this process may use, in bytes; 0 if
// unknown.
func totalMemory() int64 { return host.Machine{Root: "/"}.Memory().Most() }

// availableMemory returns how much this process can allocate without swapping, in bytes;
// 0 if unknown.
func availableMemory() int64 { return host.Machine{Root: "/"}.Memory().Usable() }

// loadAverage returns the load average of the last minute, negative if unknown.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return v
}

// procField returns the first value of a key in a file of "key : value" lines.
func procField(path, key string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
