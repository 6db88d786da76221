package sglang

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
)

var setup = externaltest.Setup{
	Backend: cluster.BackendSGLang,
	New:     func(c wire.Config) (external.Engine, error) { return New(c) },
	Tokens:  true, Logprobs: 20, Connectors: []string{"bootstrap"}, Early: true,
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }
