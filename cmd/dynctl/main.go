// Command dynctl operates clusters of disaggregated LLM workers.
package main

import (
	"os"

	"github.com/dynctl/dynctl/internal/cli"
	"github.com/dynctl/dynctl/internal/cli/hush"
)

func main() {
	hush.Restore()
	os.Exit(cli.Main(cli.Signals(), os.Args[1:], cli.System()))
}
