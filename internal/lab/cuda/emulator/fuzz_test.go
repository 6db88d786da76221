package emulator_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// FuzzRun executes what can be read: whatever it does, it is a finding or an error.
func FuzzRun(f *testing.F) {
	f.Add(drivertest.PTX)
	for _, body := range []string{
		"shl.b32 %r3, %r1, 2; mov.u32 %r4, dynamic; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.v2.u32 {%r5, %r6}, [%r4+8]; st.global.u32 [%d2], %r5;",
		"L: shfl.sync.up.b32 %r2|%p1, %r1, 3, 0, -1; @%p1 bra L; vote.sync.any.pred %p2, %p1, 15; redux.sync.add.s32 %r2, %r1, -1; setp.lt.and.f32 %p1|%p2, %f1, 0f3F800000, !%p2;",
		"mov.u32 %r4, dynamic; cp.async.cg.shared.global [%r4], [%d1], 16, %r1; cp.async.commit_group; cp.async.wait_group 0; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];",
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}; cvt.rn.bf16x2.f32 %r2, %f1, %f2; prmt.b32 %r2, %r1, %r1, 0x3210; bfi.b32 %r2, %r1, %r1, 5, 200;",
		"atom.global.cas.b64 %d5, [%d1], %d1, %d2; div.s32 %r2, -2147483648, -1; rem.s64 %d5, %d1, 0; shf.l.wrap.b32 %r2, %r1, %r1, %r1; bfe.s64 %d5, %d1, %r1, %r1; mov.b64 {%r1, _}, %d1; barrier.sync 1, 32;",
	} {
		f.Add([]byte(source(body)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := ptx.Parse("fuzz.ptx", text)
		if err != nil {
			return
		}
		m, err := emulator.Load(parsed)
		if err != nil {
			return
		}
		for _, name := range m.Kernels() {
			b := newBench(t, "ret;", make([]byte, 256), 256)
			b.Block, b.SharedBytes, b.Limit, b.Args = [3]int{40}, 128, 2000, append(b.Args, make([]byte, 64)...)
			_ = m.Kernel(name).Run(b.Launch)
		}
	})
}
