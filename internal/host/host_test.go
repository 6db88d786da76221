package host

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
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
		most   int64
	}{
		{"nothing is told", nil, Memory{}, 0, 0},
		{"no group", map[string]string{"proc/meminfo": meminfo}, Memory{Total: 16 << 20, Available: 8 << 20}, 8 << 20, 16 << 20},
		{
			"container", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n",
				"sys/fs/cgroup/memory.current": "3145728\n", "sys/fs/cgroup/memory.stat": "anon 9\ninactive_file 1048576\n",
			},
			Memory{16 << 20, 8 << 20, 4 << 20, 2 << 20}, 2 << 20, 4 << 20,
		},
		{
			"the smallest of the groups counts", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "1:cpu:/x\n0::/a/b\n", "sys/fs/cgroup/a/memory.max": "6291456\n",
				"sys/fs/cgroup/a/memory.current": "6000000\n", "sys/fs/cgroup/a/b/memory.max": "5242880\n", "sys/fs/cgroup/a/b/memory.current": "0\n",
			},
			Memory{16 << 20, 8 << 20, 5 << 20, 291456}, 291456, 5 << 20,
		},
		{
			"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			Memory{Total: 16 << 20, Available: 8 << 20}, 8 << 20, 16 << 20,
		},
		{
			"more than the machine has", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "99999999\n"},
			Memory{16 << 20, 8 << 20, 99999999, 99999999}, 8 << 20, 16 << 20,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := machine(t, tc.files).Memory()
			if got != tc.want || got.Usable() != tc.usable || got.Most() != tc.most {
				t.Errorf("got %+v, %d usable, %d at most, want %+v, %d, %d", got, got.Usable(), got.Most(), tc.want, tc.usable, tc.most)
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

func TestProcessors(t *testing.T) {
	nodes := map[string]string{
		"sys/devices/system/node/node0/cpulist":  "0-3,8-11\n",
		"sys/devices/system/node/node1/cpulist":  "4-7,12-15\n",
		"sys/devices/system/node/node10/cpulist": "\n", // memory only
	}
	with := func(more map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range []map[string]string{nodes, more} {
			for name, text := range m {
				out[name] = text
			}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		files   map[string]string
		allowed []int
		want    Processors
		cores   int
	}{
		{"nothing is told", nil, []int{0, 1}, Processors{Nodes: []NUMANode{{-1, []int{0, 1}}}}, 2},
		{"two nodes", nodes, firstCPUs(16), Processors{Nodes: []NUMANode{{0, []int{0, 1, 2, 3, 8, 9, 10, 11}}, {1, []int{4, 5, 6, 7, 12, 13, 14, 15}}}}, 16},
		{"bound to one node", nodes, []int{4, 5}, Processors{Nodes: []NUMANode{{1, []int{4, 5}}}}, 2},
		{"CPUs of no node", nodes, []int{3, 4, 20}, Processors{Nodes: []NUMANode{{0, []int{3}}, {1, []int{4, 20}}}}, 3},
		{
			"quota", with(map[string]string{"sys/fs/cgroup/cpu.max": "250000 100000\n"}), []int{0, 1, 2, 3},
			Processors{Nodes: []NUMANode{{0, []int{0, 1, 2, 3}}}, Quota: 2.5}, 3,
		},
		{
			"the smallest of the groups counts",
			map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"},
			[]int{0, 1}, Processors{Nodes: []NUMANode{{-1, []int{0, 1}}}, Quota: 0.5}, 1,
		},
		{
			"a quota above the CPUs", map[string]string{"sys/fs/cgroup/cpu.max": "6400000 100000\n"}, []int{5},
			Processors{Nodes: []NUMANode{{-1, []int{5}}}, Quota: 64}, 1,
		},
		{"nonsense", map[string]string{"sys/fs/cgroup/cpu.max": "-1 x\n", "sys/devices/system/node/node0/cpulist": "a-b,-3,9-,70000\n"}, []int{0}, Processors{Nodes: []NUMANode{{-1, []int{0}}}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := machine(t, tc.files).Processors(tc.allowed)
			if !reflect.DeepEqual(got, tc.want) || got.Cores() != tc.cores {
				t.Errorf("got %+v, %d cores, want %+v, %d", got, got.Cores(), tc.want, tc.cores)
			}
		})
	}
}

func TestBind(t *testing.T) {
	all := AllowedCPUs()
	if len(all) != runtime.NumCPU() || !slices.IsSorted(all) {
		t.Fatalf("allowed %v, %d CPUs", all, runtime.NumCPU())
	}
	if runtime.GOOS != "linux" {
		t.Skip("threads cannot be bound here")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- Bind(all[:1])
		if got := AllowedCPUs(); !slices.Equal(got, all[:1]) {
			t.Errorf("bound to %v, may run on %v", all[:1], got)
		}
		if err := Bind([]int{maxCPU}); err == nil {
			t.Error("bound to a CPU that does not exist")
		}
		close(done)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestGPUs(t *testing.T) {
	m := machine(t, map[string]string{
		"/sys/bus/pci/devices/0000:00:01.0/vendor":          "0x8086\n",
		"/sys/bus/pci/devices/0000:00:01.0/class":           "0x060000\n", // a bridge
		"/sys/bus/pci/devices/0000:3b:00.0/vendor":          "0x10de\n",
		"/sys/bus/pci/devices/0000:3b:00.0/class":           "0x030200\n",
		"/sys/bus/pci/devices/0000:3c:00.0/vendor":          "0x1002\n",
		"/sys/bus/pci/devices/0000:3c:00.0/class":           "0x120000\n",
		"/sys/bus/pci/devices/0000:3d:00.0/vendor":          "0x1234\n", // an emulated display
		"/sys/bus/pci/devices/0000:3d:00.0/class":           "0x030000\n",
		"/sys/module/nvidia/version":                        "550.54.15\n",
		"/proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA H100\nIRQ:   12\n",
		"/sys/class/infiniband/mlx5_0/node_type":            "1: CA\n",
	})
	if err := os.Symlink("../../../../bus/pci/drivers/nvidia", filepath.Join(m.Root, "/sys/bus/pci/devices/0000:3b:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	want := []GPU{
		{Vendor: "NVIDIA", Name: "NVIDIA H100", Bus: "0000:3b:00.0", Driver: "nvidia", Version: "550.54.15"},
		{Vendor: "AMD", Bus: "0000:3c:00.0"},
	}
	if got := m.GPUs(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := m.RDMA(); !slices.Equal(got, []string{"mlx5_0"}) {
		t.Errorf("RDMA devices %v", got)
	}
	if none := machine(t, nil); none.GPUs() != nil || none.RDMA() != nil {
		t.Error("an empty machine has devices")
	}
}
