package gpucheck

import (
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// pretend opens the pretended driver with all kernels.
func pretend() (driver.Driver, error) {
	return pretendWith(func([]fake.Kernel) {})
}

// pretendWith changes kernels before.
func pretendWith(change func(all []fake.Kernel)) (driver.Driver, error) {
	all, err := kerneltest.Kernels()
	if err != nil {
		return nil, err
	}
	all = append(all, readTwin)
	change(all)
	return fake.New(fake.Options{Kernels: all}), nil
}
