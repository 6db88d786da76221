package driver

import "fmt"

// Version is a CUDA version as the driver writes it: 12040 is 12.4.
type Version int

// Oldest is the version below which Open refuses: the first whose compiler knows the
// instructions of compute capability 9.0 (PTX 8.0), with NVIDIA's driver 525.
const Oldest Version = 12000

// String is the version as people write it, such as "12.4".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
