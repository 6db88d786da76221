// Package engines makes the adapter of a backend. See [New].
package engines

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/openai"
	"github.com/dynctl/dynctl/internal/external/sglang"
	"github.com/dynctl/dynctl/internal/external/trtllm"
	"github.com/dynctl/dynctl/internal/external/vllm"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// Config says which server an adapter is for, and how long it may take.
type Config = wire.Config

// New returns the adapter of the backend, for one server. It sends nothing, and fails only if
// the configuration cannot be used. The caller closes it.
func New(c Config) (external.Engine, error) {
	e, err := create(c)
	if err != nil {
		return nil, fmt.Errorf("server of %s: %w", c.Engine.Backend, err)
	}
	return e, nil
}

func create(c Config) (external.Engine, error) {
	switch c.Engine.Backend {
	case cluster.BackendVLLM:
		return vllm.New(c)
	case cluster.BackendSGLang:
		return sglang.New(c)
	case cluster.BackendTensorRTLLM:
		return trtllm.New(c)
	case cluster.BackendOpenAI:
		return openai.New(c)
	}
	return nil, fmt.Errorf("there is no adapter of backend %q", c.Engine.Backend)
}
