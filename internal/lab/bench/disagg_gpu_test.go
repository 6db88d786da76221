package bench

import (
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// Disaggregation is measured on GPUs, too, here on pretended ones: two workers on one. What
// the driver finds wrong, such as leaks, shows when it is closed.
func TestDisaggregationOnGPUs(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic in one goroutine, which would take minutes; package gpu runs with the race detector on its own")
	}
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	opened := 0
	o := Options{Sections: []string{"disagg"}, GPUs: "0", StateDir: t.TempDir(), cuda: func() (driver.Driver, error) {
		mu.Lock()
		defer mu.Unlock()
		opened++
		return closing{t, fake.New(fake.Options{Kernels: ks, Devices: []driver.Properties{{
			Name: "Pretended H200", Major: 9, Multiprocessors: 132, MemoryBytes: 1 << 28, SharedBytes: 227 << 10,
		}}})}, nil
	}}
	r, err := run(t.Context(), o, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	sec := r.Sections[0]
	if len(sec.Tables) != 2 || len(sec.Tables[0].Rows) != 3 || len(sec.Tables[1].Rows) != 6 || !strings.Contains(sec.About, "GPUs (0)") {
		t.Errorf("%+v", sec)
	}
	for _, table := range sec.Tables {
		checkTable(t, table)
	}
	if opened != 3 {
		t.Errorf("%d drivers were opened for 3 nodes", opened)
	}
	checkClean(t, o.StateDir)
}

// closing is a driver that tells what it has found.
type closing struct {
	t *testing.T
	*fake.Driver
}

func (c closing) Close() error {
	err := c.Driver.Close()
	if err != nil {
		c.t.Error(err)
	}
	return err
}
