package judge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

func TestDoctorsModelFiles(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1, Vocab: 300})
	broken := modeltest.Generate(t, modeltest.Spec{Layers: 1, Vocab: 300})
	if err := os.Truncate(filepath.Join(broken, "model.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	digest := inspect.Look(t.Context(), dir).Digest
	serves := func(path, quantize string) cluster.ModelSpec {
		return cluster.ModelSpec{Name: "m", Path: path, Quantize: quantize}
	}
	card := func(digest, weights string) cluster.ModelCard {
		return cluster.ModelCard{DisplayName: "m", Digest: digest, Weights: weights}
	}
	for _, tc := range []struct {
		name          string
		model         cluster.ModelSpec
		cards         []cluster.ModelCard
		err           error
		server        bool
		status, found string
	}{
		{name: "nothing declared", status: Skip, found: "no model is declared"},
		{name: "built in", model: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("a", "bf16")}, status: OK, found: "m is built into dynamod"},
		{name: "at a server", model: serves("", ""), server: true, status: Skip, found: "only its servers have the files of m"},
		{name: "other files", model: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("b", "bf16")}, status: Fail, found: "different files under the name m, as bf16: a, b"},
		{name: "other weights", model: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("b", "q8_0")}, status: OK, found: "built into"},
		{name: "etcd", model: serves("", ""), err: errors.New("down"), status: Fail, found: "down"},
		{name: "elsewhere", model: serves("/nowhere/model", ""), status: Skip, found: "is not on this machine"},
		{name: "here", model: serves(dir, ""), cards: []cluster.ModelCard{card(digest, "f32")}, status: OK, found: dir + ": safetensors, "},
		{name: "changed", model: serves(dir, ""), cards: []cluster.ModelCard{card("a", "f32")}, status: Warn, found: "was changed since the workers loaded it"},
		{name: "quantized", model: serves(dir, "q8_0"), cards: []cluster.ModelCard{card("a", "q8_0")}, status: OK, found: dir},
		{name: "broken", model: serves(broken, ""), status: Fail, found: broken + ": "},
	} {
		m := ModelFiles{Model: tc.model, OfServer: tc.server, Cards: tc.cards, Err: tc.err}
		if _, err := os.Stat(tc.model.Path); err == nil {
			r := inspect.Look(t.Context(), tc.model.Path)
			m.Here = &r
		}
		f := m.Judge()
		if f.Status != tc.status || !strings.Contains(f.Found, tc.found) || f.Status == Fail && f.Fix == "" {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}
