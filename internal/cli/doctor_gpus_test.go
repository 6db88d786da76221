package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/doctor"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
)

// The driver is asked by a dynamod. One of another release, which does not know the
// question, is no failure.
func TestDoctorAsksDynamodForGPUs(t *testing.T) {
	m := newMachine(t)
	look := func(say string) judge.Finding {
		var d doctor.Diagnosis
		r := m.with(t.Context(), options{env: []string{"FAKE_GPUS=" + say}}, "doctor", "-o", "json")
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
			t.Fatalf("%v, %+v", err, r)
		}
		return find(t, d.Checks, "gpu")
	}
	if f := look(`{"state":"too-old","error":"it knows CUDA 11.4","devices":[],"report":{"gpus":[]}}`); f.Status != judge.Warn || !strings.Contains(f.Found, "it knows CUDA 11.4") || f.Data["nvidia"] == nil {
		t.Errorf("of an old driver: %+v", f)
	}
	if f := look("unknown command"); f.Status == judge.Fail || f.Data["nvidia"] != nil {
		t.Errorf("of an answer that is none: %+v", f)
	}
}
