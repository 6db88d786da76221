package bench

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/host"
)

// cpuModel is the processor's name, empty when the system does not tell.
func cpuModel() string { return procField("/proc/cpuinfo", "model name") }

// totalMemory is what this process may use of the machine in bytes, 0 when unknown.
func totalMemory() int64 { return host.Machine{Root: "/"}.Memory().Most() }

// availableMemory is what this process can allocate without swapping, 0 when unknown.
func availableMemory() int64 { return host.Machine{Root: "/"}.Memory().Usable() }

// loadAverage is that of the last minute, negative when unknown.
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
