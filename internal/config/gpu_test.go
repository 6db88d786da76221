package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

func TestGPUIndexes(t *testing.T) {
	for devices, want := range map[string][]int{"none": nil, "": nil, "0": {0}, "3, 1,3": {1, 3}} {
		got, all, err := config.GPU{Devices: devices}.Indexes()
		if !slices.Equal(got, want) || all || err != nil {
			t.Errorf("%q: %v, %v, %v, want %v", devices, got, all, err, want)
		}
	}
	if got, all, err := (config.GPU{Devices: "all"}).Indexes(); got != nil || !all || err != nil {
		t.Errorf("all: %v, %v, %v", got, all, err)
	}
	for _, devices := range []string{"gpu:0", "0,", "-1", "256", "one"} {
		if _, _, err := (config.GPU{Devices: devices}).Indexes(); err == nil || !strings.Contains(err.Error(), "none, all, or indexes") {
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
