package emulator_test

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// hopper brings 64 rows of a and 8 of b by TMA, and multiplies 32 of their columns, from
// column 16 of the arrays on.
const hopper = `.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 out) {
	.reg .pred %p<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<20>;
	mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p3, %r1, 96; mov.u32 %r2, dynamic; mov.u32 %r3, 16; mov.u32 %r4, 0;
	mov.b64 %d1, a; cvta.param.u64 %d1, %d1; mov.b64 %d2, b; cvta.param.u64 %d2, %d2;
	mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
	@!%p1 bra READY;
	mbarrier.init.shared::cta.b64 [%r2+9216], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+9216], 9216;
	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d1, {%r3, %r4}], [%r2+9216];
	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+8192], [%d2, {%r3, %r4}], [%r2+9216];
READY:
	bar.sync 0;
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+9216], 0;
	@!%p2 bra WAIT;
	shr.u32 %r5, %r2, 4; cvt.u64.u32 %d3, %r5; or.b64 %d3, %d3, 0x4000004000010000; add.s64 %d4, %d3, 512; add.s64 %d5, %d3, 2; add.s64 %d6, %d4, 2;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d3, %d4, 1, 1, 1, 0, 0;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d5, %d6, 1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	ld.param.u64 %d7, [out]; mul.wide.u32 %d8, %r1, 16; add.s64 %d7, %d7, %d8; st.global.v4.f32 [%d7], {%f1, %f2, %f3, %f4};
	ret;
}
`

// Sizes of the arrays: a has fewer rows than are copied, and b fewer columns.
const aRows, aColumns, bRows, bColumns = 50, 96, 8, 40

func aValue(row, column int) int { return (row*3+column*5)%7 - 3 }
func bValue(row, column int) int { return (row*5+column*3)%5 - 2 }

func runHopper(t *testing.T, text string, seed uint64) ([]uint32, error) {
	t.Helper()
	fill := func(rows, columns int, value func(row, column int) int) []byte {
		out := make([]byte, 2*rows*columns)
		for i := range rows * columns {
			binary.LittleEndian.PutUint16(out[2*i:], uint16(math.Float32bits(float32(value(i/columns, i%columns)))>>16))
		}
		return out
	}
	a := &emulator.Allocation{Address: inAt, Bytes: fill(aRows, aColumns, aValue)}
	b := &emulator.Allocation{Address: inAt + 1<<20, Bytes: fill(bRows, bColumns, bValue)}
	out := &emulator.Allocation{Address: outAt, Bytes: make([]byte, 16*128)}
	args := make([]byte, 256)
	args[0], args[128] = 'a', 'b'
	err := load(t, text).Run(emulator.Launch{
		Block: [3]int{128}, SharedBytes: 10 << 10, Args: binary.LittleEndian.AppendUint64(args, outAt), Memory: emulator.Allocations{a, b, out}, Seed: seed, Limit: 1 << 24,
		TensorMap: func(encoded []byte) (*emulator.TensorMap, error) {
			m := &emulator.TensorMap{Value: 2, Swizzle: 128}
			switch encoded[0] {
			case 'a':
				m.Address, m.Sizes, m.Strides, m.Box = a.Address, []uint64{aColumns, aRows}, []uint64{2 * aColumns}, []uint32{64, 64}
			case 'b':
				m.Address, m.Sizes, m.Strides, m.Box = b.Address, []uint64{bColumns, bRows}, []uint64{2 * bColumns}, []uint32{64, 8}
			default:
				return nil, errors.New("is no tensor map")
			}
			return m, nil
		},
	})
	return words(out.Bytes), err
}

func TestHopper(t *testing.T) {
	for seed := range uint64(8) {
		got, err := runHopper(t, hopper, seed)
		if err != nil {
			t.Fatal(err)
		}
		sameWords(t, "products", got, func(i int) uint32 {
			thread := i / 4
			row, n := thread/32*16+thread%32/4+i%4/2*8, thread%4*2+i%2
			sum := 1
			for k := 16; k < 48; k++ {
				if row < aRows && k < bColumns {
					sum += aValue(row, k) * bValue(n, k)
				}
			}
			return math.Float32bits(float32(sum))
		})
	}
}

// TestHopperFindings takes something away, or makes it wrong.
func TestHopperFindings(t *testing.T) {
	const wait = "WAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+9216], 0;\n\t@!%p2 bra WAIT;\n"
	for _, c := range []struct {
		name, old, new string
		says           string
	}{
		{"no fence after the mbarrier was initialized", "\tfence.mbarrier_init.release.cluster;\n", "", "no fence came after it was initialized"},
		{"no mbarrier", "\tmbarrier.init.shared::cta.b64 [%r2+9216], 1;\n", "", "no mbarrier was initialized there"},
		{"an arrival that is missing", "[%r2+9216], 1;", "[%r2+9216], 2;", "lacks 1 arrivals and 0 bytes"},
		{"too many arrivals", "READY:\n", "READY: bar.sync 1; mbarrier.arrive.shared::cta.b64 _, [%r2+9216]; @!%p1 bra L; mbarrier.arrive.shared::cta.b64 _, [%r2+9216]; L:", "more arrivals than the 1"},
		{"fewer bytes announced than come", "_, [%r2+9216], 9216;", "_, [%r2+9216], 8192;", ""},
		{"more bytes announced than come", "_, [%r2+9216], 9216;", "_, [%r2+9216], 9232;", "lacks 0 arrivals and 16 bytes"},
		{"nothing announced", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+9216], 9216;", "", "an unannounced copy of"},
		{"no barrier after the mbarrier was initialized", "\tbar.sync 0;\n", "", ""},
		{"nobody waits for the copies", wait, "", "is read while thread 0,0,0 copies to it"},
		{"the other phase is waited for", "%p2, [%r2+9216], 0;", "%p2, [%r2+9216], 1;", "is read while thread 0,0,0 copies to it"},
		{"a place that is not aligned", "bytes [%r2], ", "bytes [%r2+128], ", "is no place for a box of 8192 bytes, swizzled by 128"},
		{"a place beyond shared memory", "bytes [%r2+8192], ", "bytes [%r2+10240], ", "is no place for a box of 1024 bytes"},
		{"no tensor map", "[%d1, {%r3, %r4}]", "[%d1+64, {%r3, %r4}]", "is no tensor map"},
		{"no parameter", "[%d1, {%r3, %r4}]", "[%d3, {%r3, %r4}]", "register %d3 was not written"},
		{"the copy is written over", "bytes [%r2+8192], [%d2", "bytes [%r2+7168], [%d2", "copies to it"},
		{"no wgmma.fence", "\twgmma.fence.sync.aligned;\n", "", "no wgmma.fence came after that"},
		{"registers are read before the products have ended", "wait_group.sync.aligned 0;", "wait_group.sync.aligned 1;", "register %f1 belongs to a wgmma without a wait for it"},
		{"registers change between products", "\twgmma.commit_group", "\tadd.f32 %f2, %f2, %f2; wgmma.commit_group", "register %f2 belongs to a wgmma"},
		{"products that are in no group", "\twgmma.commit_group.sync.aligned;\n", "", "register %f1 belongs to a wgmma"},
		{"a warp that misses a product", "\twgmma.fence", "\t@!%p3 bra SKIP; SKIP: @!%p3 bra OUT; wgmma.fence", ""},
		{"lanes that miss a product", "\twgmma.fence", "\tand.b32 %r6, %r1, 3; setp.eq.u32 %p4, %r6, 0; @%p4 bra OUT; wgmma.fence", "wants all lanes of the warp"},
		{"a descriptor of something else", "or.b64 %d3, %d3, 0x4000004000010000;", "or.b64 %d3, %d3, 0x0000004000010000;", "without swizzle"},
		{"what a thread wrote, without a fence", "\twgmma.fence", "\t@%p1 st.shared.u32 [%r2+8192], %r1; bar.sync 0; wgmma.fence", "no fence.proxy.async came after thread 0,0,0 wrote it"},
		{"what a thread wrote, without a barrier", "\twgmma.fence", "\t@%p1 st.shared.u32 [%r2+8192], %r1; fence.proxy.async; wgmma.fence", "without a barrier"},
		{"what a thread wrote, and it is right", "\twgmma.fence", "\t@%p1 st.shared.u32 [%r2+8192], %r1; fence.proxy.async; bar.sync 0; wgmma.fence", "-"},
		{"a box that comes while products read", "\twgmma.wait_group", "\t@!%p1 bra L; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+9216], 1024; cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+8192], [%d2, {%r3, %r4}], [%r2+9216]; L: wgmma.wait_group", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Count(hopper, c.old) != 1 {
				t.Fatalf("%q is there %d times", c.old, strings.Count(hopper, c.old))
			}
			text := strings.Replace(strings.Replace(hopper, c.old, c.new, 1), "\tld.param.u64 %d7", "\tOUT: ld.param.u64 %d7", 1)
			for seed := range uint64(3) {
				_, err := runHopper(t, text, seed)
				if c.says == "-" {
					if err != nil {
						t.Error(err)
					}
				} else if err == nil || len(findings(err)) == 0 || !contains(err.Error(), c.says) {
					t.Errorf("seed %d: found %v, want %s", seed, err, c.says)
				}
			}
		})
	}
}
