package emulator_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// registers are those that bodies of tests use.
const registers = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %d<20>; .reg .f64 %g<9>;\n"

// source is a kernel whose parameters are two addresses, in %d1 and %d2, with the number
// of the thread in %r1. The body begins in line 8.
func source(body string) string {
	return `.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 in, .param .u64 out) {
` + registers + `ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;
` + body + "\n}\n"
}

func load(t testing.TB, text string) *emulator.Kernel {
	t.Helper()
	parsed, err := ptx.Parse("k.ptx", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := emulator.Load(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return m.Kernel(m.Kernels()[0])
}

// Where operands of tests lie.
const inAt, outAt = 1 << 32, 2 << 32

// bench is a kernel with its memory.
type bench struct {
	k       *emulator.Kernel
	in, out emulator.Allocation
	emulator.Launch
}

func newBench(t testing.TB, body string, in []byte, out int) *bench {
	t.Helper()
	b := &bench{k: load(t, source(body)), in: emulator.Allocation{Address: inAt, Bytes: in}, out: emulator.Allocation{Address: outAt, Bytes: make([]byte, out)}}
	b.Launch = emulator.Launch{Block: [3]int{32}, Memory: emulator.Allocations{&b.in, &b.out}, Limit: 1 << 16}
	b.Args = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, inAt), outAt)
	return b
}

func (b *bench) run() error { return b.k.Run(b.Launch) }

// results runs a body without mistakes in blocks of so many threads, each of which writes
// one word.
func results(t testing.TB, body string, in []byte, threads int) []uint32 {
	t.Helper()
	b := newBench(t, body+" mul.wide.u32 %d19, %r1, 4; add.s64 %d19, %d19, %d2; st.global.u32 [%d19], %r2; ret;", in, 4*threads)
	b.Block = [3]int{threads}
	b.SharedBytes, b.Limit = 4096, 1<<20
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	return words(b.out.Bytes)
}

func words(b []byte) (all []uint32) {
	for i := 0; i < len(b); i += 4 {
		all = append(all, binary.LittleEndian.Uint32(b[i:]))
	}
	return all
}

func sameWords(t *testing.T, what string, got []uint32, want func(i int) uint32) {
	t.Helper()
	for i, v := range got {
		if w := want(i); v != w {
			t.Errorf("%s: thread %d has %#x, want %#x", what, i, v, w)
			return
		}
	}
}

func findings(err error) (all []*emulator.Finding) {
	if join, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range join.Unwrap() {
			if f := (*emulator.Finding)(nil); errors.As(e, &f) {
				all = append(all, f)
			}
		}
	}
	return all
}

func TestGrid(t *testing.T) {
	// Every thread of a grid of 3x2x2 blocks of 4x3x2 threads writes its place.
	b := newBench(t, `mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.y; mov.u32 %r4, %ctaid.y; mad.lo.u32 %r2, %r2, %r3, %r4;
		mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r2, %r2, %r3, %r4;
		mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.y; mov.u32 %r5, %tid.y; mad.lo.u32 %r3, %r3, %r4, %r5; mov.u32 %r4, %ntid.x;
		mad.lo.u32 %r3, %r3, %r4, %r1; mad.lo.u32 %r2, %r2, 24, %r3; mul.wide.u32 %d3, %r2, 4; add.s64 %d3, %d3, %d2; st.global.u32 [%d3], %r2; ret;`, nil, 4*24*12)
	b.Grid, b.Block = [3]int{3, 2, 2}, [3]int{4, 3, 2}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	sameWords(t, "places", words(b.out.Bytes), func(i int) uint32 { return uint32(i) })
}

// Launches that a driver refuses are refused.
func TestLaunchErrors(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"too many threads":    func(b *bench) { b.Block = [3]int{1025} },
		"a missing parameter": func(b *bench) { b.Args = b.Args[:8] },
		"too much memory":     func(b *bench) { b.SharedBytes = 1 << 30 },
		"no memory":           func(b *bench) { b.Memory = nil },
		"a large grid":        func(b *bench) { b.Grid = [3]int{1, 1 << 16} },
	} {
		b := newBench(t, "ret;", nil, 4)
		change(b)
		if b.run() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Variables of a module have their values, and a clone has its own.
func TestVariables(t *testing.T) {
	parsed, err := ptx.Parse("v.ptx", []byte(`.version 7.0
.target sm_80
.global .align 8 .u32 table[3] = {5, 6};
.const .f32 half = 0f3F000000;
.entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .b64 %d<9>; ld.param.u64 %d1, [out];
	mov.u64 %d2, table; ld.global.u32 %r1, [%d2+4]; ld.global.u32 %r2, [table+8]; add.u32 %r1, %r1, %r2; add.u32 %r3, %r1, 1; st.global.u32 [table+4], %r3;
	ld.const.f32 %f1, [half]; st.global.v2.u32 [%d1], {%r1, %r1}; st.global.f32 [%d1+4], %f1; }
`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := emulator.Load(parsed)
	if err != nil {
		t.Fatal(err)
	}
	out := &emulator.Allocation{Address: outAt, Bytes: make([]byte, 8)}
	run := func(m *emulator.Module) []uint32 {
		if err := m.Kernel("k").Run(emulator.Launch{Args: binary.LittleEndian.AppendUint64(nil, outAt), Memory: emulator.Allocations{out}}); err != nil {
			t.Fatal(err)
		}
		return words(out.Bytes)
	}
	c := m.Clone()
	for i, got := range [][]uint32{run(m), run(m), run(c)} {
		if want := []uint32{[]uint32{6, 7, 6}[i], 0x3f000000}; !slices.Equal(got, want) {
			t.Errorf("run %d: %#x, want %#x", i, got, want)
		}
	}
}

// What is not understood is refused, with its line.
func TestLoadErrors(t *testing.T) {
	for body, want := range map[string]string{
		"foo.s32 %r1, %r1;":                          "k.ptx:8: foo.s32: the opcode is not understood",
		"add.s32.what %r1, %r1, %r1;":                "k.ptx:8: add.s32.what: .what is not understood",
		"add.s32 %r1, %r1;":                          "k.ptx:8: add.s32: 2 operands, not 3",
		"add.s64 %r1, %d1, %d1;":                     "k.ptx:8: add.s64: the result has 64 bits, and its register 32",
		"add.s64 %d1, %r1, %d1;":                     "k.ptx:8: add.s64: an operand is not understood as .s64",
		"mov.u32 %r1, %clock;":                       "k.ptx:8: mov.u32: %clock is not understood",
		"mul.s32 %r1, %r1, %r1;":                     "none of .lo, .hi and .wide",
		"ld.local.u32 %r1, [%d1];":                   ".local is not understood",
		"st.param.u32 [in], %r1;":                    "cannot be written",
		".local .b8 stack[8];":                       "k.ptx:8: variable stack: .local is not understood",
		"cp.async.cg.shared.global [%r1], [%d1], 4;": "this form is not understood",
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r1}, {%f1};": "1 values, not 4",
	} {
		parsed, err := ptx.Parse("k.ptx", []byte(source(body)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := emulator.Load(parsed); err == nil || !contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
