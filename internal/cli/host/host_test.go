package host

import (
	"os"
	"path/filepath"
	"testing"
)

// machine makes a root from files.
func machine(t *testing.T, files map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{root}
}

const meminfo = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:   8192 kB\nHugePages_Total:       4\nHugePages_Free:        3\nHugepagesize:       2048 kB\n"

func TestMemory(t *testing.T) {
	for _, tc := range []struct {
		name   string
		files  map[string]string
		want   Memory
		usable int64
	}{
		{"nothing is told", nil, Memory{}, 0},
		{"no group", map[string]string{"proc/meminfo": meminfo}, Memory{Total: 16 << 20, Available: 8 << 20}, 8 << 20},
		{
			"container", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n",
				"sys/fs/cgroup/memory.current": "3145728\n", "sys/fs/cgroup/memory.stat": "anon 9\ninactive_file 1048576\n",
			},
			Memory{16 << 20, 8 << 20, 4 << 20, 2 << 20}, 2 << 20,
		},
		{
			"the smallest of the groups counts", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "1:cpu:/x\n0::/a/b\n", "sys/fs/cgroup/a/memory.max": "6291456\n",
				"sys/fs/cgroup/a/memory.current": "6000000\n", "sys/fs/cgroup/a/b/memory.max": "5242880\n", "sys/fs/cgroup/a/b/memory.current": "0\n",
			},
			Memory{16 << 20, 8 << 20, 5 << 20, 291456}, 291456,
		},
		{
			"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			Memory{Total: 16 << 20, Available: 8 << 20}, 8 << 20,
		},
		{
			"more than the machine has", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "99999999\n"},
			Memory{16 << 20, 8 << 20, 99999999, 99999999}, 8 << 20,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := machine(t, tc.files).Memory()
			if got != tc.want || got.Usable() != tc.usable {
				t.Errorf("got %+v, %d usable, want %+v, %d", got, got.Usable(), tc.want, tc.usable)
			}
		})
	}
}

func TestHugePages(t *testing.T) {
	m := machine(t, map[string]string{"proc/meminfo": meminfo, "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"})
	if got, want := m.HugePages(), (HugePages{"madvise", 4, 3, 2 << 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := machine(t, nil).HugePages(); got != (HugePages{}) {
		t.Errorf("got %+v of nothing", got)
	}
}

func TestThisMachine(t *testing.T) {
	free, total, err := Disk(t.TempDir())
	if err != nil || total == 0 || free > total {
		t.Errorf("disk: %d of %d, %v", free, total, err)
	}
	if _, _, err := Disk(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("space where nothing is")
	}
	if n, err := OpenFiles(); err != nil || n == 0 {
		t.Errorf("open files: %d, %v", n, err)
	}
	if arch, cores, _ := Processor(); arch == "" || cores < 1 {
		t.Errorf("CPU: %s, %d", arch, cores)
	}
}
