// Command dynlab measures builds of dynamod and checks its CUDA kernels.
package main

import (
	"os"

	"github.com/dynctl/dynctl/internal/lab"
)

func main() {
	os.Exit(lab.Main(os.Args[1:], os.Stdout, os.Stderr))
}
