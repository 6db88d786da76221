package cpu

import (
	"fmt"
	"runtime"
	"sync"
)

// Device is a set of cores and the pool of workers that all its backends share.
type Device struct {
	id    string
	cores int
	pool  *pool
	turns turns

	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// NewDevice starts a device: id is what it is called ("cpu:0"), cores the number
// of workers, one per core; below 1 stands for all cores of the machine. Steps
// use the calling goroutine and cores-1 goroutines of the device.
func NewDevice(id string, cores int) *Device {
	if cores < 1 {
		cores = runtime.NumCPU()
	}
	cores = min(cores, maxCores)
	return &Device{id: id, cores: cores, pool: newPool(cores)}
}

// ID is the device's name, for example "cpu:0".
func (d *Device) ID() string { return d.id }

// Name describes the device to people: "cpu 2c".
func (d *Device) Name() string { return fmt.Sprintf("cpu %dc", d.cores) }

// Cores is the number of workers.
func (d *Device) Cores() int { return d.cores }

// Close waits for the running step, refuses waiting ones with [ErrClosed], and
// stops the workers. It may be called twice.
func (d *Device) Close() error {
	d.closeOnce.Do(func() {
		d.turns.close()
		d.pool.close()
	})
	return nil
}
