package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
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
	serves := func(path, quantize string) client.View {
		return client.View{Topology: &cluster.Topology{Model: cluster.ModelSpec{Name: "m", Path: path, Quantize: quantize}, Decode: 1}}
	}
	card := func(digest, weights string) cluster.ModelCard {
		return cluster.ModelCard{DisplayName: "m", Digest: digest, Weights: weights}
	}
	for _, tc := range []struct {
		name          string
		view          client.View
		cards         []cluster.ModelCard
		err           error
		status, found string
	}{
		{name: "nothing declared", status: checkSkip, found: "no model is declared"},
		{name: "built in", view: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("a", "bf16")}, status: checkOK, found: "m is built into dynamod"},
		{name: "other files", view: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("b", "bf16")}, status: checkFail, found: "different files under the name m, as bf16: a, b"},
		{name: "other weights", view: serves("", ""), cards: []cluster.ModelCard{card("a", "bf16"), card("b", "q8_0")}, status: checkOK, found: "built into"},
		{name: "etcd", view: serves("", ""), err: errors.New("down"), status: checkFail, found: "down"},
		{name: "elsewhere", view: serves("/nowhere/model", ""), status: checkSkip, found: "is not on this machine"},
		{name: "here", view: serves(dir, ""), cards: []cluster.ModelCard{card(digest, "f32")}, status: checkOK, found: dir + ": safetensors, "},
		{name: "changed", view: serves(dir, ""), cards: []cluster.ModelCard{card("a", "f32")}, status: checkWarn, found: "was changed since the workers loaded it"},
		{name: "quantized", view: serves(dir, "q8_0"), cards: []cluster.ModelCard{card("a", "q8_0")}, status: checkOK, found: dir},
		{name: "broken", view: serves(broken, ""), status: checkFail, found: broken + ": "},
	} {
		f := filesFinding(t.Context(), tc.view, tc.cards, tc.err)
		if f.Status != tc.status || !strings.Contains(f.Found, tc.found) || f.Status == checkFail && f.Fix == "" {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}
