package model

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// TestFusedRows checks that roles that share a tensor get their own rows: the
// parts, put together again, are the tensor.
func TestFusedRows(t *testing.T) {
	tests := []struct {
		name, tensor string
		spec         Synthetic
		roles        []Role
		experts      int
		shape        []int
	}{
		{"phi3 queries, keys, values", "model.layers.1.self_attn.qkv_proj.weight",
			Synthetic{Family: "phi3", Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 6, Vocab: 260}, []Role{RoleQ, RoleK, RoleV}, 1, []int{48, 32}},
		{"phi3 gate and up", "model.layers.1.mlp.gate_up_proj.weight",
			Synthetic{Family: "phi3", Hidden: 32, FFN: 20, Vocab: 260, DType: "bf16"}, []Role{RoleGate, RoleUp}, 1, []int{40, 32}},
		{"stacked experts", "model.layers.1.mlp.experts.gate_up_proj", Synthetic{Family: "qwen3_moe", Hidden: 32, Vocab: 260, Stacked: true,
			Extra: map[string]any{"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10}}, []Role{RoleExpertGate, RoleExpertUp}, 3, []int{3, 20, 32}},
		{"stacked experts, down", "model.layers.0.block_sparse_moe.experts.down_proj", Synthetic{Family: "mixtral", Hidden: 32, FFN: 12, Vocab: 260, Stacked: true,
			Extra: map[string]any{"num_local_experts": 3}}, []Role{RoleExpertDown}, 3, []int{3, 32, 12}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustOpen(t, write(t, tt.spec))
			whole, err := m.Tensor(tt.tensor)
			if err != nil || !slices.Equal(whole.Shape, tt.shape) {
				t.Fatalf("shape %v, err = %v; want %v", whole.Shape, err, tt.shape)
			}
			layer := int(tt.tensor[len("model.layers.")] - '0')
			var joined []byte
			rows := 0
			for e := range tt.experts {
				for _, role := range tt.roles {
					part, ok := m.Expert(role, layer, e)
					if !ok || part.Shape[1] != tt.shape[len(tt.shape)-1] || part.Offset != whole.Offset+int64(len(joined)) {
						t.Fatalf("role %d of expert %d: %v %v", role, e, part, ok)
					}
					joined, rows = append(joined, part.Data...), rows+part.Shape[0]
				}
			}
			if !bytes.Equal(joined, whole.Data) || rows*tt.shape[len(tt.shape)-1] != elems(tt.shape) {
				t.Errorf("%d rows are not the tensor's %v", rows, tt.shape)
			}
			if !slices.ContainsFunc(m.Tensors(), func(s TensorSpec) bool { return s.Name == tt.tensor && len(s.Parts) == tt.experts*len(tt.roles) }) {
				t.Error("the tensor is not listed")
			}
			if _, ok := m.Expert(tt.roles[0], layer, tt.experts); ok {
				t.Error("an expert too many")
			}
		})
	}
}

// TestRoots opens checkpoints that keep the text model under other names, among
// tensors that are not its own.
func TestRoots(t *testing.T) {
	s := Synthetic{Family: "gemma3_text", Hidden: 16, Heads: 2, HeadDim: 8, FFN: 24, Vocab: 260, Tied: true}
	dir := write(t, s)
	specs := mustOpen(t, dir).Config().Tensors()
	for _, root := range []string{"language_model.model.", "model.language_model."} {
		renamed := slices.Clone(specs)
		for i := range renamed {
			renamed[i].Name = root + renamed[i].Name[len("model."):]
		}
		renamed = append(renamed, TensorSpec{Name: "vision_tower.x", Shape: []int{2}})
		weights(t, filepath.Join(dir, safetensors.SingleName), safetensors.F32, renamed)
		m := mustOpen(t, dir)
		if q, ok := m.Weight(RoleQ, 1); !ok || q.Name != root+"layers.1.self_attn.q_proj.weight" {
			t.Errorf("%s: queries are %q", root, q.Name)
		}
		if head, ok := m.Weight(RoleHead, 0); !ok || head.Name != root+"embed_tokens.weight" {
			t.Errorf("%s: head is %q", root, head.Name)
		}
	}
	gemma := gemma3()
	for root, want := range map[string]string{
		"model.": "lm_head.weight", "language_model.model.": "language_model.lm_head.weight", "model.language_model.": "lm_head.weight",
	} {
		if got := (naming{fam: gemma, root: root}).fill(gemma.names[RoleHead]); got != want {
			t.Errorf("%s: head is %q, want %q", root, got, want)
		}
	}
}
