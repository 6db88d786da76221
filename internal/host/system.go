package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Disk returns the free space for this user and the total space, in bytes, of the file
// system that holds path.
func Disk(path string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("disk space of %s: %w", path, err)
	}
	block := uint64(st.Bsize) //nolint:unconvert // its type differs between systems
	return uint64(st.Bavail) * block, uint64(st.Blocks) * block, nil
}

// OpenFiles returns the number of files that a Go program here may have open. It is the
// hard limit, because Go programs raise their own limit to that.
func OpenFiles() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return uint64(l.Max), nil //nolint:unconvert // its type differs between systems
}

// LockedMemory returns how many bytes this process may lock in memory. Memory that RDMA
// devices access must be locked.
func LockedMemory() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return 0, fmt.Errorf("limit of locked memory: %w", err)
	}
	return uint64(l.Cur), nil //nolint:unconvert // its type differs between systems
}

// Processor returns the CPU architecture, the number of cores that this process may use,
// and the CPU features for vector and matrix arithmetic.
func Processor() (arch string, cores int, features []string) {
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2},
		{"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW},
		{"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"avx512bf16", cpu.X86.HasAVX512BF16},
		{"amxbf16", cpu.X86.HasAMXBF16},
		{"amxint8", cpu.X86.HasAMXInt8},
		{"asimd", cpu.ARM64.HasASIMD},
		{"asimddp", cpu.ARM64.HasASIMDDP},
		{"i8mm", cpu.ARM64.HasI8MM},
		{"sve", cpu.ARM64.HasSVE},
	} {
		if f.has {
			features = append(features, f.name)
		}
	}
	return runtime.GOARCH, runtime.GOMAXPROCS(0), features
}
