package cluster

import "testing"

func TestDeviceLabel(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "gpu0 H100", "NVIDIA H200": "gpu0 H200", "NVIDIA A100-SXM4-80GB": "gpu0 A100", "Tesla T4": "gpu0 T4",
		"NVIDIA GeForce RTX 4070 Laptop GPU": "gpu0 4070", "NVIDIA TITAN V": "gpu0 V", "": "gpu0",
	} {
		n := &Node{Devices: []Device{{ID: "gpu:0", Name: name}}}
		if got := n.DeviceLabel("gpu:0"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	n := &Node{Devices: []Device{{ID: "cpu:0", Name: "cpu 32c", Cores: 32}}}
	for want, w := range map[string]Worker{
		"cpu0 32c":            {WorkerStatus: WorkerStatus{Device: "cpu:0"}},
		"cpu0 32c vllm":       {WorkerStatus: WorkerStatus{Device: "cpu:0"}, Engine: "vllm"},
		"sglang gpu-3.a:8001": {Engine: "sglang", ServerURL: "http://gpu-3.a:8001"},
		"":                    {},
	} {
		if got := w.Place(n); got != want {
			t.Errorf("%+v: %q, want %q", w, got, want)
		}
	}
	if a, b, c := n.DeviceLabel("cpu:0"), n.DeviceLabel("gpu:1"), (*Node)(nil).DeviceLabel("cpu:0"); a != "cpu0 32c" || b != "gpu1" || c != "cpu0" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}
