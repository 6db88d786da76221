package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

func accuracyOf(t *testing.T, o Options) (Section, error) {
	t.Helper()
	o.Sections, o.StateDir = []string{"accuracy"}, t.TempDir()
	r, err := run(t.Context(), o, smokeScale())
	if err != nil {
		return Section{}, err
	}
	checkClean(t, o.StateDir)
	return r.Sections[0], nil
}

// The reference differs from itself in nothing; kernels of AVX2 and AVX-512 give the
// same bits; portable Go rounds otherwise; eight bits of mantissa less show in a model
// of random weights, which exaggerates.
func TestAccuracy(t *testing.T) {
	sec, err := accuracyOf(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := sec.Tables[0]
	if len(table.Rows) != len(accuracyVariants()) {
		t.Errorf("%d rows of %d variants", len(table.Rows), len(accuracyVariants()))
	}
	reference := table.Rows[0].Figures[keyPerplexity].Median
	divergence := map[string]float64{}
	for i, row := range table.Rows {
		divergence[row.Name] = row.Figures[keyKLMean].Median
		f := row.Figures
		kl, diff, agree := f[keyKLMean].Median, f[keyDiffMax].Median, f[keyAgree].Median
		same := i == 0 || strings.HasSuffix(row.Name, kernel.AVX2.String()) || strings.HasSuffix(row.Name, kernel.AVX512.String())
		switch {
		case len(f) != len(accuracyColumns()):
			t.Errorf("%s: %v", row.Name, f)
		case same && (kl != 0 || diff != 0 || agree != 100 || f[keyPerplexity].Median != reference):
			t.Errorf("%s: %v, want no difference", row.Name, f)
		case strings.HasPrefix(row.Name, "weights q"):
			// Random weights keep little of their rank in four bits.
			if kl <= 0 || diff <= 0 || agree < 20 || f[keyKLMax].Median < kl {
				t.Errorf("%s: %v, want a difference", row.Name, f)
			}
		case strings.HasSuffix(row.Name, kernel.Portable.String()):
			if diff <= 0 || diff > 0.01 || agree < 99 || kl > 1e-6 {
				t.Errorf("%s: %v, want rounding only", row.Name, f)
			}
		case !same && (kl <= 0 || diff <= 0 || diff > 3 || agree < 85 || kl > 0.05 || f[keyKLMax].Median < kl):
			t.Errorf("%s: %v, want a small difference", row.Name, f)
		}
	}
	if q8, q4 := divergence["weights q8_0"], divergence["weights q4_0"]; q8 >= q4 {
		t.Errorf("q8_0 diverges by %v, q4_0 by %v", q8, q4)
	}
}

func TestAccuracyOfAModel(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{ContextLen: 48, Vocab: 1280, DType: "bf16"})
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("the worker writes a block and reads its prefix from the queue"), 0o600); err != nil {
		t.Fatal(err)
	}
	sec, err := accuracyOf(t, Options{Model: dir, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	if got := sec.Tables[0]; got.Name != "Model "+dir || !strings.Contains(got.About, text) || len(sec.Notes) > 0 {
		t.Errorf("%q, %q, notes %q", got.Name, got.About, sec.Notes)
	}
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := accuracyOf(t, Options{Model: dir, Text: text}); !errors.Is(err, errText) {
		t.Errorf("an empty text: %v", err)
	}
	if _, err := accuracyOf(t, Options{Model: dir, Text: text + "s"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no text: %v", err)
	}
	if _, err := accuracyOf(t, Options{Model: dir + "s"}); err == nil {
		t.Error("no model: no error")
	}
}

// Slow variants of large models are left out, and the report says so.
func TestAccuracyLeavesOut(t *testing.T) {
	sc := smokeScale()
	sc.accuracy.slowBytes = 1
	r, err := run(t.Context(), Options{Sections: []string{"accuracy"}, StateDir: t.TempDir()}, sc)
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Contains(strings.Join(r.Sections[0].Notes, "\n"), "instructions portable is left out")
	if want := kernel.Best() != kernel.Portable; left != want {
		t.Errorf("notes %q", r.Sections[0].Notes)
	}
}
