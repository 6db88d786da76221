package host

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Machine reads /proc and /sys below the directory Root.
type Machine struct{ Root string }

// Memory holds the memory that this process may use, in bytes; 0 means unknown or no
// limit.
type Memory struct {
	Total, Available int64
	// Limit is the smallest limit of the control groups (version 2) that this process is
	// in. LimitLeft is the least that one of them leaves. Inactive file pages count as
	// left.
	Limit, LimitLeft int64
}

// Usable returns how much can still be allocated: the lesser of what the machine has
// available and what the control group leaves.
func (m Memory) Usable() int64 {
	if m.Limit > 0 && (m.Available == 0 || m.LimitLeft < m.Available) {
		return m.LimitLeft
	}
	return m.Available
}

// Most returns how much this process may have in total: the lesser of the machine's
// memory and the limit of its control group.
func (m Memory) Most() int64 {
	if m.Limit > 0 && (m.Total == 0 || m.Limit < m.Total) {
		return m.Limit
	}
	return m.Total
}

// Memory reads the machine's memory and the limits of the control groups.
func (m Machine) Memory() Memory {
	info := m.fields("/proc/meminfo")
	out := Memory{Total: info["MemTotal"] << 10, Available: info["MemAvailable"] << 10}
	const base = "/sys/fs/cgroup"
	for at := m.group(); ; at = path.Dir(at) {
		dir := path.Join(base, at)
		if limit, ok := m.number(dir + "/memory.max"); ok {
			used, _ := m.number(dir + "/memory.current")
			left := max(limit-used+m.fields(dir + "/memory.stat")["inactive_file"], 0)
			if out.Limit == 0 || limit < out.Limit {
				out.Limit = limit
			}
			if out.LimitLeft == 0 || left < out.LimitLeft {
				out.LimitLeft = max(left, 1)
			}
		}
		if at == "/" {
			return out
		}
	}
}

// group returns the control group of this process, or "/" if it is unknown.
func (m Machine) group() string {
	b, err := os.ReadFile(filepath.Join(m.Root, "/proc/self/cgroup"))
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Clean("/" + at)
		}
	}
	return "/"
}

// HugePages describes the machine's huge pages.
type HugePages struct {
	Transparent    string // always, madvise, never; empty when unknown
	Reserved, Free int64  // pages
	Size           int64  // bytes of one page
}

// HugePages reads the configuration of huge pages.
func (m Machine) HugePages() HugePages {
	info := m.fields("/proc/meminfo")
	h := HugePages{Reserved: info["HugePages_Total"], Free: info["HugePages_Free"], Size: info["Hugepagesize"] << 10}
	b, err := os.ReadFile(filepath.Join(m.Root, "/sys/kernel/mm/transparent_hugepage/enabled"))
	if err != nil {
		return h
	}
	if _, rest, ok := strings.Cut(string(b), "["); ok { // always [madvise] never
		h.Transparent, _, _ = strings.Cut(rest, "]")
	}
	return h
}

// fields reads lines like "Name: 12 kB" or "name 12". It ignores the unit; the caller
// must know it.
func (m Machine) fields(name string) map[string]int64 {
	out := map[string]int64{}
	b, err := os.ReadFile(filepath.Join(m.Root, name))
	if err != nil {
		return out
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if len(words) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			out[strings.TrimSuffix(words[0], ":")] = n
		}
	}
	return out
}

// number reads a file that holds one number. It returns false for "max".
func (m Machine) number(name string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(m.Root, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
