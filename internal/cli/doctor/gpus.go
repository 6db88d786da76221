package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// askGPUs has dynamod say what it finds of NVIDIA's driver: dynctl loads no libraries,
// and a driver with a broken GPU may hang or crash whoever does.
func (o *Options) askGPUs(ctx context.Context) (*cluster.GPUSupport, error) {
	path, out, missing, err := o.dynamod(ctx, "gpus", "-o", "json")
	if missing != nil {
		return nil, missing
	}
	if ctx.Err() != nil {
		return nil, errors.New("NVIDIA's driver does not answer; run nvidia-smi for details")
	}
	var s cluster.GPUSupport
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s gpus: %w", path, err)
	}
	return &s, nil
}
