// Command dynamod is the node agent of a dynctl cluster.
package main

import (
	"os"

	"github.com/dynctl/dynctl/internal/dynamod"
)

func main() {
	os.Exit(dynamod.Main(os.Args[1:], os.Stdout, os.Stderr))
}
