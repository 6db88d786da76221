package emulator_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// operands are words and pairs of them that are hard for arithmetic, and random ones.
func operands(n int) []uint64 {
	all := []uint64{
		0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0x80000001, 0x8000, 0xffff, 0x7fff, 0x80, 0x3c00, 0x7c00, 0xfbff,
		0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0x100000000,
	}
	for _, f := range []float64{1, -1, 0.5, 1.5, 2.5, -2.5, 1e30, -1e30, 3.4e38, 1e-38, 1e-45, -1e-40, 0x1p-126, 1 + 0x1p-23, 1 + 0x1p-12, 1.0 / 3, 65504, 65520, 448, 464, 479, 480, 0x1p-9, 0x1p-10, 3e9, -3e9, math.Inf(1), math.Inf(-1), math.NaN()} {
		all = append(all, uint64(math.Float32bits(float32(f))), math.Float64bits(f))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for len(all) < n {
		v := r.Uint64()
		switch r.IntN(3) {
		case 0: // a number of middling size
			v = uint64(math.Float32bits(float32(r.NormFloat64())))
		case 1:
			v >>= r.IntN(64)
		}
		all = append(all, v)
	}
	return all
}

// exact32 rounds an exact number to float32 in some direction.
func exact32(v *big.Float, how big.RoundingMode) float32 {
	if v.Sign() == 0 {
		return 0
	}
	// Precision shrinks with the exponent of numbers below the smallest normal one.
	precision := min(24, 24+v.MantExp(nil)+125)
	if precision < 1 {
		f, _ := v.Float32() // to nearest; other directions are not tested there
		return f
	}
	f, _ := new(big.Float).SetPrec(uint(precision)).SetMode(how).Set(v).Float32()
	return f
}

// number is a float32 as an exact number; false for what is none.
func number(v uint64) (*big.Float, bool) {
	f := math.Float32frombits(uint32(v))
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return nil, false
	}
	return new(big.Float).SetPrec(2000).SetFloat64(float64(f)), true
}

// fma is the exact a*b + c, false where it has no sign or is no number.
func fma(a, b, c uint64) (*big.Float, bool) {
	x, ok1 := number(a)
	y, ok2 := number(b)
	z, ok3 := number(c)
	if !ok1 || !ok2 || !ok3 {
		return nil, false
	}
	x.Mul(x, y).Add(x, z)
	return x, x.Sign() != 0
}

const one = 0x3f800000

func float(v uint64) float64 { return float64(math.Float32frombits(uint32(v))) }

// TestArithmetic computes each instruction for many operands, and compares with what the
// PTX ISA says, written in another way. %d3, %d4 and %d5 have the operands, %r3 to %r5 and
// %f3 to %f5 their lower halves, %h3 to %h5 of those.
func TestArithmetic(t *testing.T) {
	type check func(a, b, c uint64) (want uint64, know bool)
	sure := func(f func(a, b, c uint64) uint64) check {
		return func(a, b, c uint64) (uint64, bool) { return f(a, b, c), true }
	}
	round := func(how big.RoundingMode, f func(a, b, c uint64) (*big.Float, bool)) check {
		return func(a, b, c uint64) (uint64, bool) {
			v, ok := f(a, b, c)
			if !ok {
				return 0, false
			}
			r := exact32(v, how)
			if math.Abs(float64(r)) < 0x1p-120 && how != big.ToNearestEven || math.IsInf(float64(r), 0) {
				return 0, false
			}
			return uint64(math.Float32bits(r)), true
		}
	}
	s32 := func(v uint64) int64 { return int64(int32(v)) }
	low := func(v int64) uint64 { return uint64(uint32(v)) }
	div := func(f func(a, b *big.Int) *big.Int) check {
		return func(a, b, _ uint64) (uint64, bool) {
			if int32(b) == 0 {
				return 0, false
			}
			return low(f(big.NewInt(s32(a)), big.NewInt(s32(b))).Int64()), true
		}
	}
	wide := func(a, b, c uint64) uint64 { return uint64(uint32(a))*uint64(uint32(b)) + c }
	for form, f := range map[string]check{
		"add.s32 R, %r3, %r4":         sure(func(a, b, _ uint64) uint64 { return low(s32(a) + s32(b)) }),
		"sub.u32 R, %r3, %r4":         sure(func(a, b, _ uint64) uint64 { return low(s32(a) - s32(b)) }),
		"sub.s64 D, %d3, %d4":         sure(func(a, b, _ uint64) uint64 { return a - b }),
		"add.s16 H, %h3, %h4":         sure(func(a, b, _ uint64) uint64 { return (a + b) & 0xffff }),
		"mul.lo.s32 R, %r3, %r4":      sure(func(a, b, _ uint64) uint64 { return low(s32(a) * s32(b)) }),
		"mad.lo.s32 R, %r3, %r4, %r5": sure(func(a, b, c uint64) uint64 { return low(s32(a)*s32(b) + s32(c)) }),
		"mul.hi.s32 R, %r3, %r4":      sure(func(a, b, _ uint64) uint64 { return low(s32(a) * s32(b) >> 32) }),
		"mul.hi.u32 R, %r3, %r4":      sure(func(a, b, _ uint64) uint64 { return wide(a, b, 0) >> 32 }),
		"mul.hi.u64 D, %d3, %d4":      sure(func(a, b, _ uint64) uint64 { h, _ := bits.Mul64(a, b); return h }),
		"mul.hi.s64 D, %d3, %d4": sure(func(a, b, _ uint64) uint64 {
			return uint64(new(big.Int).Rsh(new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b))), 64).Int64())
		}),
		"mul.wide.s32 D, %r3, %r4":      sure(func(a, b, _ uint64) uint64 { return uint64(s32(a) * s32(b)) }),
		"mul.wide.u32 D, %r3, %r4":      sure(func(a, b, _ uint64) uint64 { return wide(a, b, 0) }),
		"mul.wide.u16 R, %h3, %h4":      sure(func(a, b, _ uint64) uint64 { return (a & 0xffff) * (b & 0xffff) }),
		"mul.wide.s16 R, %h3, %h4":      sure(func(a, b, _ uint64) uint64 { return low(int64(int16(a)) * int64(int16(b))) }),
		"mad.wide.u32 D, %r3, %r4, %d5": sure(wide),
		"div.s32 R, %r3, %r4":           div(func(a, b *big.Int) *big.Int { return a.Quo(a, b) }),
		"rem.s32 R, %r3, %r4":           div(func(a, b *big.Int) *big.Int { return a.Rem(a, b) }),
		"div.u32 R, %r3, %r4": func(a, b, _ uint64) (uint64, bool) {
			return uint64(uint32(a)) / max(uint64(uint32(b)), 1), uint32(b) != 0
		},
		"min.s32 R, %r3, %r4": sure(func(a, b, _ uint64) uint64 { return low(min(s32(a), s32(b))) }),
		"max.u64 D, %d3, %d4": sure(func(a, b, _ uint64) uint64 { return max(a, b) }),
		"min.s64 D, %d3, %d4": sure(func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) }),
		"neg.s32 R, %r3":      sure(func(a, _, _ uint64) uint64 { return low(-s32(a)) }),
		"abs.s32 R, %r3":      sure(func(a, _, _ uint64) uint64 { return low(max(s32(a), -s32(a))) }),
		"not.b32 R, %r3":      sure(func(a, _, _ uint64) uint64 { return low(^int64(a)) }),
		"xor.b64 D, %d3, -2":  sure(func(a, _, _ uint64) uint64 { return a ^ (1<<64 - 2) }),
		"shl.b32 R, %r3, %r4": sure(func(a, b, _ uint64) uint64 {
			return low(int64(new(big.Int).Lsh(big.NewInt(int64(uint32(a))), uint(min(uint32(b), 40))).Uint64()))
		}),
		"shr.u32 R, %r3, %r4":             sure(func(a, b, _ uint64) uint64 { return uint64(uint32(a)) >> min(uint32(b), 32) }),
		"shr.s32 R, %r3, %r4":             sure(func(a, b, _ uint64) uint64 { return low(s32(a) >> min(uint32(b), 32)) }),
		"shr.s64 D, %d3, 60":              sure(func(a, _, _ uint64) uint64 { return uint64(int64(a) >> 60) }),
		"shr.u16 H, %h3, 3":               sure(func(a, _, _ uint64) uint64 { return a & 0xffff >> 3 }),
		"popc.b32 R, %r3":                 sure(func(a, _, _ uint64) uint64 { return uint64(strings.Count(fmt.Sprintf("%b", uint32(a)), "1")) }),
		"clz.b32 R, %r3":                  sure(func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) }),
		"brev.b32 R, %r3":                 sure(func(a, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }),
		"bfe.u32 R, %r3, 5, 9":            sure(func(a, _, _ uint64) uint64 { return a >> 5 & 0x1ff }),
		"bfe.s32 R, %r3, 28, 9":           sure(func(a, _, _ uint64) uint64 { return low(s32(a) >> 28) }),
		"bfi.b32 R, %r3, %r4, 20, 8":      sure(func(a, b, _ uint64) uint64 { return b&0xf00fffff | a&0xff<<20 }),
		"bfi.b64 D, %d3, %d4, 32, 32":     sure(func(a, b, _ uint64) uint64 { return b&0xffffffff | a<<32 }),
		"shf.l.wrap.b32 R, %r3, %r4, 7":   sure(func(a, b, _ uint64) uint64 { return b<<7&0xffffffff | uint64(uint32(a))>>25 }),
		"shf.r.clamp.b32 R, %r3, %r4, 99": sure(func(_, b, _ uint64) uint64 { return uint64(uint32(b)) }),
		"lop3.b32 R, %r3, %r4, %r5, 0x96": sure(func(a, b, c uint64) uint64 { return uint64(uint32(a ^ b ^ c)) }),
		"lop3.b32 R, %r3, %r4, %r5, 0xe2": sure(func(a, b, c uint64) uint64 { return uint64(uint32(b&a | c&^b)) }), // a by b, else c
		"prmt.b32 R, %r3, %r4, 0x6541":    sure(func(a, b, _ uint64) uint64 { return a>>8&0xff | b&0xff<<8 | b>>8&0xff<<16 | b>>16&0xff<<24 }),
		"prmt.b32 R, %r3, %r4, 0x00f8": sure(func(a, b, _ uint64) uint64 {
			return uint64(uint8(int8(a)>>7)) | uint64(uint8(int8(b>>24)>>7))<<8 | a&0xff<<16 | a&0xff<<24
		}),

		"cvt.u16.u32 H, %r3":    sure(func(a, _, _ uint64) uint64 { return a & 0xffff }),
		"cvt.s64.s32 D, %r3":    sure(func(a, _, _ uint64) uint64 { return uint64(s32(a)) }),
		"cvt.s32.s8 R, %r3":     sure(func(a, _, _ uint64) uint64 { return low(int64(int8(a))) }),
		"cvt.u64.u32 D, %r3":    sure(func(a, _, _ uint64) uint64 { return uint64(uint32(a)) }),
		"cvt.s64.s16 D, %h3":    sure(func(a, _, _ uint64) uint64 { return uint64(int64(int16(a))) }),
		"cvt.sat.u8.s32 R, %r3": sure(func(a, _, _ uint64) uint64 { return low(max(0, min(255, s32(a)))) }),
		"cvt.sat.s8.s32 R, %r3": sure(func(a, _, _ uint64) uint64 { return low(max(-128, min(127, s32(a)))) }),
		"cvt.rn.f32.s32 F, %r3": sure(func(a, _, _ uint64) uint64 {
			return uint64(math.Float32bits(exact32(new(big.Float).SetInt64(s32(a)), big.ToNearestEven)))
		}),
		"cvt.rn.f32.u64 F, %d3": sure(func(a, _, _ uint64) uint64 {
			return uint64(math.Float32bits(exact32(new(big.Float).SetUint64(a), big.ToNearestEven)))
		}),
		"cvt.rzi.u32.f32 R, %f3": func(a, _, _ uint64) (uint64, bool) { v := float(a); return uint64(max(0, min(v, 1<<32-1))), v == v },
		"cvt.rni.s32.f32 R, %f3": func(a, _, _ uint64) (uint64, bool) {
			v := float(a)
			return low(int64(math.RoundToEven(max(-1<<31, min(v, 1<<31-1))))), v == v
		},
		"cvt.rpi.f32.f32 F, %f3": func(a, _, _ uint64) (uint64, bool) {
			v := math.Ceil(float(a))
			return uint64(math.Float32bits(float32(v))), v == v
		},
		"cvt.sat.f32.f32 F, %f3": sure(func(a, _, _ uint64) uint64 {
			if v := float(a); v > 0 {
				return uint64(math.Float32bits(float32(min(v, 1))))
			}
			return 0
		}),

		"add.f32 F, %f3, %f4":         round(big.ToNearestEven, func(a, b, _ uint64) (*big.Float, bool) { return fma(a, one, b) }),
		"sub.rn.f32 F, %f3, %f4":      round(big.ToNearestEven, func(a, b, _ uint64) (*big.Float, bool) { return fma(b, one|1<<31, a) }),
		"mul.f32 F, %f3, %f4":         round(big.ToNearestEven, func(a, b, _ uint64) (*big.Float, bool) { return fma(a, b, 0) }),
		"mul.rz.f32 F, %f3, %f4":      round(big.ToZero, func(a, b, _ uint64) (*big.Float, bool) { return fma(a, b, 0) }),
		"add.rm.f32 F, %f3, %f4":      round(big.ToNegativeInf, func(a, b, _ uint64) (*big.Float, bool) { return fma(a, one, b) }),
		"fma.rn.f32 F, %f3, %f4, %f5": round(big.ToNearestEven, fma),
		"fma.rm.f32 F, %f3, %f4, %f5": round(big.ToNegativeInf, fma),
		"fma.rp.f32 F, %f3, %f4, %f5": round(big.ToPositiveInf, fma),
		"fma.rz.f32 F, %f3, %f4, %f5": round(big.ToZero, fma),
		"div.rn.f32 F, %f3, %f4": round(big.ToNearestEven, func(a, b, _ uint64) (*big.Float, bool) {
			x, ok1 := number(a)
			y, ok2 := number(b)
			if !ok1 || !ok2 || x.Sign() == 0 || y.Sign() == 0 {
				return nil, false
			}
			return x.Quo(x, y), true
		}),
		"max.f32 F, %f3, %f4": sure(func(a, b, _ uint64) uint64 {
			x, y := float(a), float(b)
			switch {
			case x != x && y != y:
				return 0x7fffffff
			case x != x || y > x || y == x && b>>31&1 == 0:
				return b & 0xffffffff
			}
			return a & 0xffffffff
		}),
		"neg.f32 F, %f3":                   sure(func(a, _, _ uint64) uint64 { return uint64(uint32(a) ^ 1<<31) }),
		"abs.f32 F, %f3":                   sure(func(a, _, _ uint64) uint64 { return uint64(uint32(a) &^ (1 << 31)) }),
		"ex2.approx.ftz.f32 F, 0f40800000": sure(func(_, _, _ uint64) uint64 { return 0x41800000 }),
		"ex2.approx.ftz.f32 F, 0fC3020000": sure(func(_, _, _ uint64) uint64 { return 0 }), // 2^-130
		"rcp.approx.ftz.f32 F, 0f40000000": sure(func(_, _, _ uint64) uint64 { return 0x3f000000 }),
		"rsqrt.approx.f32 F, 0f41800000":   sure(func(_, _, _ uint64) uint64 { return 0x3e800000 }),
		"sqrt.rn.f32 F, 0f41100000":        sure(func(_, _, _ uint64) uint64 { return 0x40400000 }),
		"lg2.approx.f32 F, 0f41000000":     sure(func(_, _, _ uint64) uint64 { return 0x40400000 }),
		"mov.b64 D, {%r3, %r4}":            sure(func(a, b, _ uint64) uint64 { return uint64(uint32(a)) | b<<32 }),
		"mov.b32 {H, _}, %r3":              sure(func(a, _, _ uint64) uint64 { return a & 0xffff }),
		"mov.b64 {_, R}, %d3":              sure(func(a, _, _ uint64) uint64 { return a >> 32 }),
		"setp.lt.s32 %p1|%p2, %r3, %r4; selp.b32 R, 1, 2, %p1; @%p2 add.s32 R, R, 4": sure(func(a, b, _ uint64) uint64 {
			if s32(a) < s32(b) {
				return 1
			}
			return 6
		}),
		"setp.geu.f32 %p1, %f3, %f4; selp.u32 R, 1, 0, %p1":                                   sure(func(a, b, _ uint64) uint64 { return truth(!(float(a) < float(b))) }),
		"setp.ne.f32 %p1, %f3, %f4; selp.u32 R, 1, 0, %p1":                                    sure(func(a, b, _ uint64) uint64 { x, y := float(a), float(b); return truth(x < y || x > y) }),
		"setp.nan.f32 %p1, %f3, %f4; selp.u32 R, 1, 0, %p1":                                   sure(func(a, b, _ uint64) uint64 { return truth(float(a) != float(a) || float(b) != float(b)) }),
		"setp.hi.u64 %p1, %d3, %d4; selp.u32 R, 1, 0, !%p1":                                   sure(func(a, b, _ uint64) uint64 { return truth(a <= b) }),
		"setp.eq.s16 %p1, %h3, %h4; setp.gt.and.u32 %p1, %r3, 5, !%p1; selp.u32 R, 1, 0, %p1": sure(func(a, b, _ uint64) uint64 { return truth(uint32(a) > 5 && uint16(a) != uint16(b)) }),
		"setp.lt.u32 %p1, %r3, %r4; setp.lt.u32 %p2, %r4, %r5; xor.pred %p3, %p1, %p2; not.pred %p3, %p3; selp.u32 R, 1, 0, %p3": sure(func(a, b, c uint64) uint64 {
			return truth((uint32(a) < uint32(b)) == (uint32(b) < uint32(c)))
		}),
	} {
		arithmetic(t, form, f)
	}
}

func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// arithmetic runs a form for many operands; R, D, H or F is its result.
func arithmetic(t *testing.T, form string, want func(a, b, c uint64) (uint64, bool)) {
	t.Helper()
	const threads = 1024
	in := make([]byte, 24*threads)
	values := operands(200)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 3 * threads {
		binary.LittleEndian.PutUint64(in[8*i:], values[r.IntN(len(values))])
	}
	var body strings.Builder
	body.WriteString("mul.wide.u32 %d9, %r1, 24; add.s64 %d9, %d9, %d1;\n")
	for n := 3; n <= 5; n++ {
		fmt.Fprintf(&body, "ld.global.u64 %%d%d, [%%d9+%d]; cvt.u32.u64 %%r%[1]d, %%d%[1]d; mov.b32 %%f%[1]d, %%r%[1]d; cvt.u16.u32 %%h%[1]d, %%r%[1]d;\n", n, 8*n-24)
	}
	text := strings.NewReplacer("R", "%r2", "D", "%d8", "H", "%h2", "F", "%f2").Replace(form)
	body.WriteString("mov.u64 %d8, 0; mov.u32 %r2, 0;\n" + text + ";\n")
	switch {
	case strings.Contains(form, "F"):
		body.WriteString("mov.b32 %r2, %f2;")
	case strings.Contains(form, "H"):
		body.WriteString("cvt.u32.u16 %r2, %h2;")
	}
	if !strings.Contains(form, "D") {
		body.WriteString("cvt.u64.u32 %d8, %r2;")
	}
	body.WriteString("mul.wide.u32 %d9, %r1, 8; add.s64 %d9, %d9, %d2; st.global.u64 [%d9], %d8; ret;")
	b := newBench(t, body.String(), in, 8*threads)
	b.Block = [3]int{threads}
	if err := b.run(); err != nil {
		t.Fatalf("%s: %v", form, err)
	}
	known := 0
	for i := range threads {
		var o [3]uint64
		for n := range o {
			o[n] = binary.LittleEndian.Uint64(in[24*i+8*n:])
		}
		w, know := want(o[0], o[1], o[2])
		if !know {
			continue
		}
		known++
		if got := binary.LittleEndian.Uint64(b.out.Bytes[8*i:]); got != w {
			t.Errorf("%s of %#x, %#x, %#x is %#x, want %#x", form, o[0], o[1], o[2], got, w)
			return
		}
	}
	if known < threads/8 {
		t.Errorf("%s: only %d of %d results are known", form, known, threads)
	}
}
