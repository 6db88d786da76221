package emulator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// TestFindings makes each mistake once, in line 9, and once what is nearly the same and
// right: the form stands for # in the body. Two warps run it; %p1 and %p2 are true in their
// first threads, 0 and 32.
func TestFindings(t *testing.T) {
	const (
		rows    = "shl.b32 %r2, %r1, 4; and.b32 %r2, %r2, 112; mov.u32 %r3, dynamic; add.u32 %r3, %r3, %r2; mov.u32 %r4, 0; setp.lt.u32 %p3, %r1, 8; @%p3 st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};"
		nothing = "mov.f32 %f1, 0f00000000; mov.u32 %r2, 0; "
		product = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r2, %r2}, {%r2}, {%f1, %f1, %f1, %f1};"
	)
	for _, c := range []struct {
		name, body   string
		wrong, right string
		check        emulator.Check
		says         string
	}{
		{"an access behind an allocation", "\nld.global.u32 %r2, [%d1+#];", "64", "60", emulator.MemoryCheck, "address 0x100000040: 4 bytes of no allocation"},
		{"an access over its end", "\nld.global.v2.u32 {%r2, %r3}, [%d1+#];", "60", "56", emulator.MemoryCheck, "the last are behind an allocation of 64 bytes"},
		{"an access before it", "\nld.u32 %r2, [%d1+#];", "-4", "0", emulator.MemoryCheck, "0xfffffffc"},
		{"an access that is not aligned", "\nld.global.v2.u32 {%r2, %r3}, [%d1+#];", "4", "8", emulator.MemoryCheck, "is no multiple of 8"},
		{"a parameter that is not there", "\nld.param.u64 %d3, [in+#];", "16", "8", emulator.MemoryCheck, "8 bytes are not among the parameters"},
		{"shared memory that is not there", "mov.u32 %r2, 0;\nst.shared.u32 [dynamic+#], %r2;", "256", "252", emulator.MemoryCheck, "beyond the block's shared memory"},
		{"shared memory by a generic address", "mov.u64 %d3, dynamic; cvta.shared.u64 %d4, %d3; mov.u32 %r2, 0;\nst.shared.u32 [%d#], %r2;", "4", "3", emulator.MemoryCheck, "a generic address"},
		{"device memory as shared memory", "mov.u64 %d3, dynamic; cvta.shared.u64 %d3, %d3;\ncvta.to.shared.u64 %d4, %d#;", "1", "3", emulator.MemoryCheck, "is no address of shared memory"},
		{"a copy over the end", "mov.u32 %r2, dynamic;\n@%p1 cp.async.cg.shared.global [%r2], [%d1+#], 16;", "64", "48", emulator.MemoryCheck, "16 bytes of no allocation"},

		{"a write that another warp reads", "@%p1 st.shared.u32 [dynamic], %r1; #\n@%p2 ld.shared.u32 %r3, [dynamic];", "bar.arrive 0, 128;", "bar.sync 0;", emulator.RaceCheck, ""},
		{"a read that another warp overwrites", "@%p1 st.shared.u32 [dynamic], %r1; bar.sync 0; @%p1 ld.shared.u32 %r3, [dynamic]; #\n@%p2 st.shared.u32 [dynamic], %r1;", "", "bar.sync 0;", emulator.RaceCheck, ""},
		{"two that write", "or.b32 %r2, %r1, #; @%p1 st.shared.u32 [dynamic], %r2;\n@%p2 st.shared.u32 [dynamic], %r2;", "0", "32", emulator.RaceCheck, "wrote it without a barrier"},
		{"a write that another lane reads", "setp.eq.u32 %p3, %r1, 1; @%p1 st.shared.u32 [dynamic], %r1; #\n@%p3 ld.shared.u32 %r3, [dynamic];", "", "bar.warp.sync -1;", emulator.RaceCheck, "thread 1,0,0: address 0x400: is read, and thread 0,0,0 wrote it"},
		{"lanes that write at once", "and.b32 %r2, %r1, #; shl.b32 %r3, %r1, 2; mov.u32 %r4, dynamic; add.u32 %r3, %r3, %r4; and.b32 %r3, %r3, -8;\nst.shared.u32 [%r3], %r2;", "1", "0", emulator.RaceCheck, "wrote it without a barrier"},
		{"atomics beside a write", "mov.u32 %r2, 0; @%p1 st.shared.u32 [dynamic], %r2; # @%p2\natom.shared.add.u32 %r3, [dynamic], 1;", "setp.eq.u32 %p2, %r1, 3;", "bar.sync 0;", emulator.RaceCheck, "thread 0,0,0 wrote it"},
		{"a matrix whose rows another lane wrote", rows + "#\nsetp.lt.u32 %p3, %r1, 32; @!%p3 ret; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3];", "", "bar.sync 0;", emulator.RaceCheck, ""},
		{"a copy that nobody waited for", "mov.u32 %r2, dynamic; @!%p1 ret; cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.commit_group; cp.async.wait_group #;\nld.shared.u32 %r3, [%r2];", "1", "0", emulator.RaceCheck, "thread 0,0,0 copies to it"},
		{"a copy that only another thread waited for", "mov.u32 %r2, dynamic; @%p1 cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all; setp.eq.u32 %p3, %r1, 1; #\n@%p3 ld.shared.u32 %r3, [%r2];", "", "bar.sync 0;", emulator.RaceCheck, "thread 1,0,0"},

		{"a barrier that some lanes miss", "setp.ge.u32 %p3, %r1, #;\n@%p3 bar.sync 1, 32;", "5", "32", emulator.SyncCheck, "others are not"},
		{"a barrier that a warp misses", "setp.ge.u32 %p3, %r1, #; @%p3 ret;\nbar.sync 0;", "32", "64", emulator.SyncCheck, "waits at barrier 0, where 32 of 64 threads come"},
		{"a barrier that does not exist", "\nbar.sync #;", "16", "15", emulator.SyncCheck, "there is no barrier 16"},
		{"half a warp at a barrier", "\nbar.sync 1, #;", "48", "64", emulator.SyncCheck, "no number of warps"},
		{"a shuffle from a lane that does not take part", "setp.lt.u32 %p3, %r1, 20; @!%p3 ret;\nshfl.sync.idx.b32 %r2, %r1, #, 31, 0xfffff;", "20", "19", emulator.SyncCheck, "lane 20, which does not take part"},
		{"a shuffle with lanes that have ended", "setp.lt.u32 %p3, %r1, #; @!%p3 ret;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", "30", "64", emulator.SyncCheck, "which have ended"},
		{"lanes with two masks", "setp.eq.u32 %p3, %r1, 3; selp.b32 %r2, #, -1, %p3;\nvote.sync.ballot.b32 %r3, %p3, %r2;", "8", "-1", emulator.SyncCheck, "the mask of lanes is 0x8, and another lane's is 0xffffffff"},
		{"a product that a lane misses", nothing + "setp.eq.u32 %p3, %r1, #; @%p3 bra OUT;\n" + product + " OUT:", "9", "64", emulator.SyncCheck, "0xfffffdff of 0xffffffff are here"},
		{"lanes that wait for each other at two places", "setp.lt.u32 %p3, %r1, #; @%p3 bra OTHER;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; bra OUT; OTHER: shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; OUT:", "16", "64", emulator.SyncCheck, "waits for lanes that do not come"},

		{"a register that was not written", "#\nadd.u32 %r2, %r3, 1;", "", "mov.u32 %r3, 0;", emulator.UninitializedCheck, "register %r3 was not written"},
		{"a register that some lanes wrote", "setp.ne.u32 %p3, %r1, #; @%p3 mov.u32 %r3, 0;\nadd.u32 %r2, %r3, 1;", "7", "64", emulator.UninitializedCheck, "thread 7,0,0: register %r3"},
		{"a predicate that was not written", "#\n@%p3 add.u32 %r2, %r1, 1;", "", "setp.eq.u32 %p3, %r1, 1;", emulator.UninitializedCheck, "register %p3"},
		{"shared memory that was not written", "shl.b32 %r2, %r1, 2; mov.u32 %r3, dynamic; add.u32 %r2, %r2, %r3; #\nld.shared.u32 %r4, [%r2];", "", "st.shared.u32 [%r2], %r1;", emulator.UninitializedCheck, "shared memory was not written"},
		{"device memory that was not written", "#\n@%p1 ld.global.u32 %r2, [%d2];", "", "@%p1 st.global.u32 [%d2], %r1;", emulator.UninitializedCheck, "address 0x200000000: device memory was not written"},

		{"a loop without end", "setp.eq.u32 %p3, %r1, #; L:\n@%p3 bra L;", "3", "64", emulator.EndCheck, "has not ended after"},
		{"an end on purpose", "setp.eq.u32 %p3, %r1, #;\n@%p3 trap;", "3", "64", emulator.EndCheck, "thread 3,0,0: the kernel ends itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, form := range []string{c.wrong, c.right} {
				body := "setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32; " + strings.ReplaceAll(c.body, "#", form) + "\nret;"
				for seed := range uint64(4) {
					b := newBench(t, body, make([]byte, 64), 64)
					b.Block, b.SharedBytes, b.Seed, b.out.Written = [3]int{64}, 256, seed, emulator.NewBitmap(64)
					err := b.run()
					if form != c.wrong {
						if err != nil {
							t.Errorf("it is right: %v", err)
						}
						continue
					}
					// Where two are in each other's way, it hangs on the order of warps which of them is told.
					if !slices.ContainsFunc(findings(err), func(f *emulator.Finding) bool {
						return f.Check == c.check && (f.Line == 9 || c.check == emulator.RaceCheck) && contains(f.Error(), c.says)
					}) {
						t.Errorf("seed %d: found %v, want %s of line 9: %s", seed, err, c.check, c.says)
					}
				}
			}
		})
	}
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// A line of the source that .loc names is told.
func TestFindingNamesTheSource(t *testing.T) {
	b := newBench(t, ".file 1 \"k.cu\"\n.loc 1 33 5\nld.global.u32 %r2, [%d1];", nil, 4)
	got := findings(b.run())
	if len(got) != 1 || got[0].Times != 32 || !contains(got[0].Error(), "k: k.ptx:10 (k.cu:33): ld.global.u32: memory: block 0,0,0 thread 0,0,0: ") || !contains(got[0].Error(), "(and 31 more)") {
		t.Errorf("found %v", got)
	}
}
