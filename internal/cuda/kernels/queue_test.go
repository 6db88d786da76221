package kernels_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// refusing is a device that no kernel may reach.
type refusing struct{ *testing.T }

func (r refusing) TensorMapEncode(_ int, m *driver.TensorMap) (driver.EncodedTensorMap, error) {
	r.Errorf("a tensor map of %+v", m)
	return driver.EncodedTensorMap{}, nil
}

func (r refusing) LaunchKernel(_ int, l *driver.Launch, _ uint64) error {
	r.Errorf("a launch of %+v", l)
	return nil
}

// What a kernel cannot compute is refused before it is launched, and the error says what
// it is.
func TestShapesAreRefused(t *testing.T) {
	q := kernels.NewQueue(refusing{t}, nil, 0, 1)
	const p = 4096 // an address
	kv := kernels.KV{Pool: p, Shape: kvlayout.Shape{Layers: 2, KVHeads: 2, HeadDim: 128, BlockSize: 16, DType: "bf16"}}
	attend := kernels.Attend{Out: p, Q: 2 * p, KV: kv, Tables: p, Lengths: p, Sequences: 1, TableBlocks: 8, QueryHeads: 4}
	with := func(change func(a *kernels.Attend)) kernels.Attend {
		a := attend
		change(&a)
		return a
	}
	decode := func(a kernels.Attend) error {
		return q.DecodeAttention(kernels.DecodeAttention{Attend: a, MaxLength: 16})
	}
	for what, err := range map[string]error{
		"hidden is 12":                  q.Embed(kernels.Embed{Out: p, Table: p, IDs: p, Tokens: 1, Hidden: 12, Rows: 1}),
		"rows is 0":                     q.Embed(kernels.Embed{Out: p, Table: p, IDs: p, Tokens: 1, Hidden: 16}),
		"0x1008 is not":                 q.Embed(kernels.Embed{Out: p + 8, Table: p, IDs: p, Tokens: 1, Hidden: 16, Rows: 1}),
		"residual is another":           q.RMSNorm(kernels.Norm{Out: p, X: 2 * p, Weight: p, Residual: p, Rows: 1, Hidden: 16}),
		"no activation 7":               q.GLU(kernels.GLU{Out: p, In: p, Tokens: 1, Inner: 16, Act: 7}),
		"9 tokens, at most 8":           q.GEMV(kernels.MatMul{Out: p, X: p, W: p, Tokens: 9, Rows: 1, In: 8}),
		"inputs is 9":                   q.GEMM(kernels.MatMul{Out: p, X: p, W: p, Tokens: 9, Rows: 1, In: 9}),
		"a token has 9 of 8 experts":    q.Route(kernels.Route{Experts: kernels.Experts{Chosen: p, Shares: p, Plan: p, Tokens: 1, Count: 8, Active: 9}, Logits: p}),
		"5000 experts":                  q.Route(kernels.Route{Experts: kernels.Experts{Chosen: p, Shares: p, Plan: p, Tokens: 1, Count: 5000, Active: 2}, Logits: p}),
		"a token has 33 of 64":          q.Combine(kernels.Combine{Experts: kernels.Experts{Shares: p, Tokens: 1, Count: 64, Active: 33}, Out: p, X: p, Hidden: 8}),
		"inputs is 12":                  q.ExpertMatMul(kernels.ExpertMatMul{Experts: kernels.Experts{Plan: p, Tokens: 1, Count: 8, Active: 2}, Out: p, X: p, W: p, Rows: 3, In: 12}),
		"hidden is 20":                  q.Combine(kernels.Combine{Experts: kernels.Experts{Shares: p, Tokens: 1, Count: 8, Active: 2}, Out: p, X: p, Hidden: 20}),
		"no type of weights 4":          q.GEMM(kernels.MatMul{Out: p, X: p, W: p, Tokens: 9, Rows: 1, In: 8, Type: 4}),
		"multiple of 32":                q.GEMV(kernels.MatMul{Out: p, X: p, W: p, Scales: p, Tokens: 1, Rows: 1, In: 48, Type: kernels.Q8_0}),
		"multiple of 16":                q.ExpertMatMul(kernels.ExpertMatMul{Experts: kernels.Experts{Plan: p, Tokens: 1, Count: 8, Active: 2}, Out: p, X: p, W: p, Scales: p, Rows: 3, In: 24, Type: kernels.E4M3}),
		"0x0 is not the address":        q.GEMM(kernels.MatMul{Out: p, X: p, W: p, Tokens: 1, Rows: 1, In: 32, Type: kernels.Q8_0}),
		"no table of weights of type 2": q.Embed(kernels.Embed{Out: p, Table: p, Scales: p, IDs: p, Tokens: 1, Hidden: 16, Rows: 1, Type: kernels.E4M3}),
		"130 of 128 dimensions":         q.RopeAppend(kernels.RopeAppend{Q: p, QKV: p, KV: kv, Positions: p, Slots: p, Tokens: 1, QueryHeads: 4, Rotary: 130}),
		"no layer 2 of 2":               decode(with(func(a *kernels.Attend) { a.KV.Layer = 2 })),
		"KV is f32":                     decode(with(func(a *kernels.Attend) { a.KV.Shape.DType = "f32" })),
		"up to 128 with KV of int8":     decode(with(func(a *kernels.Attend) { a.KV.Shape.DType, a.KV.Shape.HeadDim = "int8", 144 })),
		"head dimension is 100":         decode(with(func(a *kernels.Attend) { a.KV.Shape.HeadDim = 100 })),
		"heads have 272 dimensions":     decode(with(func(a *kernels.Attend) { a.KV.Shape.HeadDim = 272 })),
		"tokens of a KV block is 24":    decode(with(func(a *kernels.Attend) { a.KV.Shape.BlockSize = 24 })),
		"query heads is 5":              decode(with(func(a *kernels.Attend) { a.QueryHeads = 5 })),
		"KV heads is 0":                 decode(with(func(a *kernels.Attend) { a.KV.Shape.KVHeads = 0 })),
		"overwrites the queries":        decode(with(func(a *kernels.Attend) { a.Q = a.Out })),
		"129 tokens in 8 blocks":        q.DecodeAttention(kernels.DecodeAttention{Attend: attend, MaxLength: 129}),
		"0x0 is not":                    q.PrefillAttention(kernels.PrefillAttention{Attend: attend, MaxTokens: 1}),
		"pieces have 24 bytes":          q.Copy(kernels.Copy{To: p, From: p, ToOffsets: p, FromOffsets: p, Pieces: 1, Bytes: 24}),
		"1 ranks, kernels know 2":       q.SumRanks(kernels.SumRanks{Sums: []uint64{p}, Parts: []uint64{p}, Count: 8}),
		"sums go to 0 places":           q.SumRanks(kernels.SumRanks{Parts: []uint64{p, 2 * p}, Count: 8}),
		"values 4 to 12 are":            q.SumRanks(kernels.SumRanks{Sums: []uint64{p}, Parts: []uint64{p, 2 * p}, First: 4, Count: 8}),
		"9 of 8 tokens":                 q.Sample(kernels.Sample{Out: p, Logits: p, Params: p, Rows: 1, Vocab: 8, Limit: 9}),
		"masks of 1 words":              q.Sample(kernels.Sample{Out: p, Logits: p, Params: p, Rows: 1, Vocab: 64, Limit: 33, Masks: p, MaskWords: 1}),
		"embed is not loaded":           q.Embed(kernels.Embed{Out: p, Table: p, IDs: p, Tokens: 1, Hidden: 16, Rows: 1}),
	} {
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"no tokens":    q.GEMM(kernels.MatMul{Out: p, X: p, W: p, Rows: 1, In: 8}),
		"no sequences": decode(with(func(a *kernels.Attend) { a.Sequences = 0 })),
		"no pieces":    q.Copy(kernels.Copy{To: p, From: p, ToOffsets: p, FromOffsets: p, Bytes: 16}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
