package agent

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// openWith opens a small model that has a description of its image processor.
func openWith(t *testing.T, family, preprocessor string) *model.Model {
	t.Helper()
	dir := modeltest.Generate(t, modeltest.Vision()[family])
	if err := os.WriteFile(filepath.Join(dir, model.PreprocessorName), []byte(preprocessor), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

const smallPatches = `{"processor_class": "Qwen2VLProcessor", "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 64, "max_pixels": 4096}`

// Patches have to be those that the tower takes.
func TestImagesFitTheTower(t *testing.T) {
	if proc, err := images(openWith(t, "qwen2_vl", smallPatches)); err != nil || proc == nil {
		t.Error(err)
	}
	for family, preprocessor := range map[string]string{
		"qwen2_vl":   `{"processor_class": "Qwen2VLProcessor"}`,
		"qwen2_5_vl": strings.Replace(smallPatches, `"temporal_patch_size": 2`, `"temporal_patch_size": 1`, 1),
		"llava":      smallPatches,
	} {
		if _, err := images(openWith(t, family, preprocessor)); err == nil || !strings.Contains(err.Error(), "cuts patches of") {
			t.Errorf("%s: %v", family, err)
		}
	}
}

// An encode worker that cannot encode says why.
func TestNoEncoderSaysWhy(t *testing.T) {
	as := cluster.Assignment{Role: cluster.RoleEncode}
	for preprocessor, want := range map[string]string{
		`{"processor_class": "Qwen2VLProcessor"}`: "cuts patches of",
		smallPatches: "the device computes no vision tower",
	} {
		sm := &sharedModel{model: openWith(t, "qwen2_vl", preprocessor)}
		if _, _, err := (&models{}).newBackend(t.Context(), as, sm, nil, cluster.EngineSpec{}); err == nil || !strings.Contains(err.Error(), "no images can be encoded: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// An image has to stand in the grid that the prompt has for it.
func TestEncodeInGrids(t *testing.T) {
	m := openWith(t, "qwen2_5_vl", smallPatches)
	proc, err := images(m)
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.NewDevice("cpu:0", 1)
	defer d.Close()
	w, err := d.LoadVision(m)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e := &encoder{proc: proc, weights: w, width: m.Config().Hidden}
	defer e.close()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 24))); err != nil {
		t.Fatal(err)
	}
	rows, err := e.Encode(t.Context(), &protocol.MediaPart{Kind: protocol.MediaImage, Grid: protocol.Grid{T: 1, H: 3, W: 5}}, b.Bytes())
	if err != nil || len(rows) != 15 || len(rows[0]) != 32 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for _, grid := range []protocol.Grid{{T: 1, H: 5, W: 3}, {}} {
		if _, err := e.Encode(t.Context(), &protocol.MediaPart{Kind: protocol.MediaImage, Grid: grid}, b.Bytes()); !errors.Is(err, media.ErrBadContent) {
			t.Errorf("%v: %v", grid, err)
		}
	}
	// What a worker that encodes only is warmed up with.
	stands := towerBackend{e, "cpu:0", *m.Config().Vision}
	if rows, err := e.views(t.Context(), []engine.View{gray(stands.vision)}); err != nil || len(rows) != 1 {
		t.Errorf("%d rows of a gray view, %v", len(rows), err)
	}
}
