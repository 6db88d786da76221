package openai

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
)

var setup = externaltest.Setup{
	Backend:  cluster.BackendOpenAI,
	New:      func(c wire.Config) (external.Engine, error) { return New(c) },
	Logprobs: -1,
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }
