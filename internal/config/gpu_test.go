package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

func TestGPUGroups(t *testing.T) {
	for devices, want := range map[string][][]int{
		"none": nil, "": nil, "0": {{0}}, "3, 1,3": {{1}, {3}}, "2+3,0+1": {{0, 1}, {2, 3}}, "1 + 0, 4": {{1, 0}, {4}}, "0+0": {{0, 0}}, "0+1,0+1": {{0, 1}},
	} {
		got, all, err := config.GPU{Devices: devices}.Groups()
		if !slices.EqualFunc(got, want, slices.Equal[[]int]) || all || err != nil {
			t.Errorf("%q: %v, %v, %v, want %v", devices, got, all, err, want)
		}
	}
	if got, all, err := (config.GPU{Devices: "all"}).Groups(); got != nil || !all || err != nil {
		t.Errorf("all: %v, %v, %v", got, all, err)
	}
	for devices, want := range map[string]string{
		"gpu:0": "none, all, indexes", "0,": "none, all, indexes", "-1": "none, all, indexes", "256": "none, all, indexes", "one": "none, all, indexes",
		"0+": "groups of them such as 0+1", "+1": "groups of them", "all+0": "groups of them", "0,0+1": "GPU 0 in two devices", "0+1,1+0": "in two devices", "0+0,0": "GPU 0 in two",
	} {
		if _, _, err := (config.GPU{Devices: devices}).Groups(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", devices, err)
		}
	}
}

func TestShares(t *testing.T) {
	key := config.Key{Kind: config.KindShare}
	for text, want := range map[string]float64{"0.9": 0.9, "1": 1, "1e-3": 0.001} {
		if got, err := key.Parse(text); got != want || err != nil {
			t.Errorf("Parse(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-0.1", "1.01", "NaN", "Inf", "", "90%"} {
		if got, err := key.Parse(text); err == nil || !strings.Contains(err.Error(), "is not a number above 0 and at most 1") {
			t.Errorf("Parse(%q) = %v, %v", text, got, err)
		}
	}
}
