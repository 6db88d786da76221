package trtllm

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
)

var setup = externaltest.Setup{
	Backend: cluster.BackendTensorRTLLM,
	New:     func(c wire.Config) (external.Engine, error) { return New(c) },
	Tokens:  true, Connectors: []string{"context-first", "generation-first"},
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }
