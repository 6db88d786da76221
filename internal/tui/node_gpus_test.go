package tui

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A node without GPUs says so, and why.
func TestNodeWithoutGPUs(t *testing.T) {
	s := labSnapshot()
	for report, want := range map[*cluster.GPUReport]string{
		nil: "the node does not report them",
		{GPUs: []cluster.GPU{}, Missing: "NVIDIA's driver is not installed"}: "none: NVIDIA's driver is not installed",
	} {
		s.Nodes[0].GPU = report
		sc := newScreen(t, s, 120, 40, Options{})
		sc.press("n", "enter")
		sc.has("gpus", want)
	}
}

// The screen of a node with an alarm says what has to be seen to, before anything else.
func TestNodeWithAlarms(t *testing.T) {
	s := labSnapshot()
	s.Nodes[0].Alarms = []string{"the disk of /var/lib/dynctl is full"}
	sc := newScreen(t, s, 120, 40, Options{})
	sc.press("n", "enter")
	sc.has("alarms", "the disk of /var/lib/dynctl is full")
}

// The inventory has no figures that change; none is made up.
func TestGPUsWithoutFigures(t *testing.T) {
	s := labSnapshot()
	inventory := s.Nodes[0].GPU.Inventory()
	s.Nodes[0].GPU = &inventory
	sc := newScreen(t, s, 120, 40, Options{})
	sc.press("n", "enter")
	sc.has("gpus (6)", "  0  NVIDIA H200  141 GiB    -    -      -     -      -  -")
}
