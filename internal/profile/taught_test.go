package profile

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTaughtProfiles(t *testing.T) {
	good := Taught{Model: "m", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Server: "http://gpu-1:8000", Profile: Profile{
		Version: Version, Devices: 2, Limits: Limits{KVBlocks: 10, BlockSize: 16, MaxSeqs: 4, MaxBatchTokens: 64, MaxContext: 128}, Step: Costs{Step: 0.01, Token: 1e-5},
	}}
	b, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeTaught(b); err != nil || !reflect.DeepEqual(got, good) {
		t.Errorf("%+v, %v", got, err)
	}
	for want, change := range map[string]func(*Taught){
		"without a model":    func(t *Taught) { t.Model = "" },
		"costs nothing":      func(t *Taught) { t.Profile.Step = Costs{} },
		"take no time":       func(t *Taught) { t.Profile.Step = Costs{Token: 1} },
		"version: 7":         func(t *Taught) { t.Profile.Version = 7 },
		"measure fewer":      func(t *Taught) { t.Server = strings.Repeat("x", maxTaught) },
		"limits.block_size:": func(t *Taught) { t.Profile.Limits.BlockSize = 0 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Encode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"model":"m"}`, strings.Repeat(" ", maxTaught+1)} {
		if _, err := DecodeTaught([]byte(text)); err == nil {
			t.Errorf("%.20q: no error", text)
		}
	}
}
