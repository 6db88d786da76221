package dynamod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

func TestGPUSupport(t *testing.T) {
	h200 := driver.Properties{Name: "NVIDIA H200", PCI: "0000:3b:00.0", Major: 9, Multiprocessors: 132, MemoryBytes: 141 << 30, SharedBytes: 227 << 10}
	prohibited, exclusive, t4 := h200, h200, h200
	prohibited.ComputeProhibited, exclusive.ExclusiveProcess = true, true
	t4.Major, t4.Minor = 7, 5
	with := func(ps ...driver.Properties) func() (driver.Driver, error) {
		return func() (driver.Driver, error) { return fake.New(fake.Options{Devices: ps}), nil }
	}
	without := func(err error) func() (driver.Driver, error) {
		return func() (driver.Driver, error) { return nil, fmt.Errorf("%w: the details", err) }
	}
	lost := func() (driver.Driver, error) {
		d := fake.New(fake.Options{Devices: []driver.Properties{h200}})
		d.Lose(0, driver.UncorrectableECC)
		return d, nil
	}
	figures := func() (cluster.GPUReport, error) {
		return cluster.GPUReport{Driver: "580.65.06", GPUs: []cluster.GPU{{Name: "NVIDIA H200"}}}, nil
	}
	none := func() (cluster.GPUReport, error) {
		return cluster.GPUReport{}, errors.New("NVIDIA's driver is not installed")
	}
	for name, c := range map[string]struct {
		open   func() (driver.Driver, error)
		report func() (cluster.GPUReport, error)
		state  cluster.GPUState
		text   []string
	}{
		"usable": {with(h200, exclusive), figures, cluster.GPUsUsable, []string{
			"CUDA 13.0\n", "gpu 0: NVIDIA H200 at 0000:3b:00.0, compute capability 9.0, 132 multiprocessors, 144384 MiB, 144384 MiB free, compute mode default, kernels for sm_80 and sm_90a\n",
			"compute mode exclusive, kernels for sm_80 and sm_90a\n", "NVIDIA's driver 580.65.06 reports figures of 1 GPUs\n",
		}},
		"one of two": {with(h200, prohibited), none, cluster.GPUsUsable, []string{"gpu 1: NVIDIA H200", ": its compute mode prohibits processes", "no figures: NVIDIA's driver is not installed\n"}},
		"prohibited": {with(prohibited), figures, cluster.GPUsUnusable, []string{"no GPU can be used: its compute mode prohibits processes"}},
		"too weak":   {with(t4), figures, cluster.GPUsUnusable, []string{"no GPU can be used: no kernels for this device", "capability 7.5"}},
		"lost":       {lost, figures, cluster.GPUsUnusable, []string{"no GPU can be used: ", "gpu 0: device 0: "}},
		"no library": {without(driver.ErrNoLibrary), none, cluster.GPUsNoLibrary, []string{driver.ErrNoLibrary.Error() + ": the details\n"}},
		"no device":  {without(driver.ErrNoDevice), none, cluster.GPUsNoDevice, []string{"the details"}},
		"too old":    {without(driver.ErrTooOld), none, cluster.GPUsTooOld, []string{"the details"}},
		"broken":     {without(driver.ErrUnusable), none, cluster.GPUsUnusable, []string{"the details"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpuSupport(c.open, c.report)
			if s.State != c.state || (s.Error == "") != (c.state == cluster.GPUsUsable) || s.Devices == nil {
				t.Errorf("%+v", s)
			}
			var out bytes.Buffer
			if err := writeGPUs(&out, s); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.text {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

// The command answers on every machine, in a form that dynctl reads.
func TestGPUsCommand(t *testing.T) {
	var out bytes.Buffer
	cmd := command(&out, os.Stderr)
	cmd.SetArgs([]string{"gpus", "-o", "json"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var s cluster.GPUSupport
	if err := json.Unmarshal(out.Bytes(), &s); err != nil || s.State == "" || s.Devices == nil || s.Report.GPUs == nil {
		t.Errorf("%s: %v", out.String(), err)
	}
	cmd = command(&out, os.Stderr)
	cmd.SetArgs([]string{"gpus", "-o", "yaml"})
	var usage usageError
	if err := cmd.Execute(); !errors.As(err, &usage) {
		t.Errorf("of a form that is not there: %v", err)
	}
}
