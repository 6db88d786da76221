package dynamod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/module"
	"github.com/dynctl/dynctl/internal/cuda/nvml"
)

// gpusCommand reports what this program finds of NVIDIA's driver. It runs in a process of
// its own that ends, because a driver with a broken GPU may hang or crash its caller.
func gpusCommand(stdout io.Writer) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "gpus", Short: "say which GPUs this machine offers, or why none",
		Long: `gpus loads NVIDIA's driver as a GPU engine would, and says what it finds: each GPU with
its compute capability and memory, or why there is none and what to do. Engines compute
on those that --gpu-devices names. dynctl doctor asks the same.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("--output: %q is not text or json", output)}
			}
			s := gpuSupport(driver.Open, func() (cluster.GPUReport, error) {
				n, err := nvml.Open()
				if err != nil {
					return cluster.GPUReport{}, err
				}
				r, err := n.Report()
				return r, errors.Join(err, n.Close())
			})
			if output == "json" {
				return json.NewEncoder(stdout).Encode(s)
			}
			return writeGPUs(stdout, s)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "form of the answer: text or json")
	return cmd
}

// gpuSupport asks the CUDA driver and NVML.
func gpuSupport(open func() (driver.Driver, error), report func() (cluster.GPUReport, error)) cluster.GPUSupport {
	s := cluster.GPUSupport{State: cluster.GPUsUsable, Devices: []cluster.CUDADevice{}}
	var err error
	if s.Report, err = report(); err != nil {
		s.Report = cluster.GPUReport{GPUs: []cluster.GPU{}, Missing: err.Error()}
	}
	d, err := open()
	if err != nil {
		s.State, s.Error = gpuState(err), err.Error()
		return s
	}
	s.CUDA = d.Version().String()
	usable := 0
	for i := range d.DeviceCount() {
		c := cudaDevice(d, i)
		if c.Error == "" {
			usable++
		}
		s.Devices = append(s.Devices, c)
	}
	if usable == 0 {
		s.State, s.Error = cluster.GPUsUnusable, "no GPU can be used: "+s.Devices[0].Error
	}
	if err := d.Close(); err != nil && s.Error == "" {
		s.State, s.Error = cluster.GPUsUnusable, err.Error()
	}
	return s
}

func gpuState(err error) cluster.GPUState {
	switch {
	case errors.Is(err, driver.ErrNoLibrary):
		return cluster.GPUsNoLibrary
	case errors.Is(err, driver.ErrNoDevice):
		return cluster.GPUsNoDevice
	case errors.Is(err, driver.ErrTooOld):
		return cluster.GPUsTooOld
	}
	return cluster.GPUsUnusable
}

func cudaDevice(d driver.Driver, device int) cluster.CUDADevice {
	p, err := d.DeviceProperties(device)
	if err != nil {
		return cluster.CUDADevice{Name: "device " + strconv.Itoa(device), ComputeMode: "unknown", Error: err.Error()}
	}
	c := cluster.CUDADevice{
		Name: p.Name, Bus: p.PCI, Capability: fmt.Sprintf("%d.%d", p.Major, p.Minor), Multiprocessors: p.Multiprocessors,
		MemoryBytes: p.MemoryBytes, ComputeMode: "default",
	}
	switch {
	case p.ComputeProhibited:
		c.ComputeMode, c.Error = "prohibited", "its compute mode prohibits processes: run nvidia-smi -c DEFAULT"
		return c
	case p.ExclusiveProcess:
		c.ComputeMode = "exclusive"
	}
	if c.Kernels, err = module.Targets(p); err != nil {
		c.Error = err.Error()
	}
	if c.MemoryFree, _, err = d.MemGetInfo(device); err != nil {
		c.Error = err.Error()
	}
	return c
}

// writeGPUs prints the report as text.
func writeGPUs(w io.Writer, s cluster.GPUSupport) error {
	text := ""
	if s.Error != "" {
		text += s.Error + "\n"
	} else {
		text += "CUDA " + s.CUDA + "\n"
	}
	for i, d := range s.Devices {
		text += fmt.Sprintf("gpu %d: %s", i, d.Name)
		if d.Capability != "" {
			text += fmt.Sprintf(" at %s, compute capability %s, %d multiprocessors, %d MiB", d.Bus, d.Capability, d.Multiprocessors, d.MemoryBytes>>20)
		}
		if d.Error != "" {
			text += ": " + d.Error
		} else {
			text += fmt.Sprintf(", %d MiB free, compute mode %s, kernels for %s", d.MemoryFree>>20, d.ComputeMode, strings.Join(d.Kernels, " and "))
		}
		text += "\n"
	}
	if s.Report.Missing != "" {
		text += "no figures: " + s.Report.Missing + "\n"
	} else {
		text += fmt.Sprintf("NVIDIA's driver %s reports figures of %d GPUs\n", s.Report.Driver, len(s.Report.GPUs))
	}
	_, err := io.WriteString(w, text)
	return err
}
