package simulation

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/profile"
)

// WithTables returns the profile with the tables in a folder of results of NVIDIA Dynamo's
// profiler in place of its costs of steps.
func WithTables(p *profile.Profile, dir string) (*profile.Profile, error) {
	prefill, err := readTable(filepath.Join(dir, "selected_prefill_interpolation", "raw_data.npz"), profile.ReadPrefill)
	if err != nil {
		return nil, err
	}
	decode, err := readTable(filepath.Join(dir, "selected_decode_interpolation", "raw_data.npz"), profile.ReadDecode)
	if err != nil {
		return nil, err
	}
	q := *p
	q.Step, q.Fitted, q.Measured = profile.Costs{}, nil, profile.Measured{Prefill: prefill, Decode: decode}
	return &q, q.Validate()
}

func readTable[T any](path string, read func(io.Reader) (*T, error)) (*T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the tables of Dynamo's profiler: %w", err)
	}
	defer f.Close()
	t, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
