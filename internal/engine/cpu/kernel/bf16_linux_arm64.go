package kernel

import "golang.org/x/sys/unix"

// detectBF16 reads what the system tells programs about the processor.
func detectBF16() bool {
	const (
		hwcap2 = 26      // AT_HWCAP2
		bf16   = 1 << 14 // HWCAP2_BF16
	)
	vector, err := unix.Auxv()
	if err != nil {
		return false // the products in float32 need no permission
	}
	for _, v := range vector {
		if v[0] == hwcap2 {
			return v[1]&bf16 != 0
		}
	}
	return false
}
