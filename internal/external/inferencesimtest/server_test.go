package inferencesimtest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/external/inferencesimtest"
)

// The simulator answers as a server of vLLM does, and is gone when it is killed.
func TestServer(t *testing.T) {
	s := inferencesimtest.Start(t, "--max-model-len", "2048")
	get := func() (string, error) {
		resp, err := http.Get(s.URL + "/v1/models") //nolint:noctx // the simulator is of this test
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return string(raw), err
	}
	models, err := get()
	if err != nil || !strings.Contains(models, inferencesimtest.Model) || !strings.Contains(models, `"max_model_len":2048`) {
		t.Fatalf("models %s, %v", models, err)
	}
	s.Kill()
	if models, err := get(); err == nil {
		t.Errorf("a killed simulator answers %s", models)
	}
}
