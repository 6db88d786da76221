// Command dynctl operates clusters of disaggregated LLM workers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/dynctl/dynctl/internal/cli"
	"github.com/dynctl/dynctl/internal/cli/hush"
)

func main() {
	hush.Restore()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ctrl-c ends the program at once
	os.Exit(cli.Main(ctx, os.Args[1:], cli.System()))
}
