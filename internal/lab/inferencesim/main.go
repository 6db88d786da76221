// Command inferencesim is the simulator of vLLM servers of llm-d, as it is, for tests: a peer
// that nobody here has written. It is in a module of its own, whose packages nothing else
// needs:
//
//	make inference-sim
package main

import (
	"context"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/llm-d/llm-d-inference-sim/cmd/signals"
	"github.com/llm-d/llm-d-inference-sim/pkg/common"
	"github.com/llm-d/llm-d-inference-sim/pkg/communication"
	vllmsim "github.com/llm-d/llm-d-inference-sim/pkg/llm-d-inference-sim"
)

func main() {
	if err := run(); err != nil {
		klog.Background().Error(err, "inferencesim")
		os.Exit(1)
	}
}

// run is main of the simulator, which no other module can import.
func run() error {
	logger := klog.Background()
	ctx := signals.SetupSignalHandler(klog.NewContext(context.Background(), logger))
	config, err := common.ParseCommandParamsAndLoadConfig()
	if err != nil {
		return err
	}
	simulators, err := vllmsim.Start(ctx, config, logger)
	if err != nil {
		return err
	}
	g := new(errgroup.Group)
	for _, sim := range simulators {
		g.Go(func() error { return communication.Start(ctx, logger, sim) })
	}
	return g.Wait()
}
