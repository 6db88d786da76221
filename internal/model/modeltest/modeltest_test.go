package modeltest

import (
	"testing"
)

func TestGenerateAndOpen(t *testing.T) {
	spec := Spec{Family: "qwen3", KVHeads: 2, Shards: 2, DType: "bf16"}
	a, b := Open(t, spec), Open(t, spec)
	if a.Dir() == b.Dir() || a.Digest() != b.Digest() {
		t.Errorf("%s and %s have digests %s and %s, want equal ones", a.Dir(), b.Dir(), a.Digest(), b.Digest())
	}
	if c := a.Config(); !c.QKNorm || c.KVHeads != 2 || c.DType != "bfloat16" {
		t.Errorf("config = %+v", c)
	}
}
