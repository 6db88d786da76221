package emulator_test

import (
	"encoding/binary"
	"math"
	"sort"
	"testing"
)

// small is a floating-point format, as a list of its positive finite numbers in order:
// their place in it is what their bits are.
type small struct {
	numbers []float64
	above   uint64 // what follows the largest: infinity, or NaN
	sign    uint64
	finite  bool // overflow is the largest number
}

func newSmall(exponent, mantissa int, infinite, finite bool) (s small) {
	bias := 1<<(exponent-1) - 1
	last := 1<<(exponent+mantissa) - 2 // the one behind is NaN
	if infinite {
		last = (1<<exponent-1)<<mantissa - 1
	}
	for bits := 0; bits <= last; bits++ {
		e, m := bits>>mantissa, float64(bits&(1<<mantissa-1))
		v := math.Ldexp(m, 1-bias-mantissa)
		if e > 0 {
			v = math.Ldexp(1+math.Ldexp(m, -mantissa), e-bias)
		}
		s.numbers = append(s.numbers, v)
	}
	s.above, s.sign, s.finite = uint64(last+1), 1<<(exponent+mantissa), finite
	return s
}

// nearest is the number of the format that is nearest to one, of two the even one.
func (s small) nearest(v float64) uint64 {
	var sign uint64
	if math.Signbit(v) {
		sign, v = s.sign, -v
	}
	n := len(s.numbers)
	i := sort.SearchFloat64s(s.numbers, v) // the first that is not below
	if i == n {
		largest := s.numbers[n-1]
		half := (largest - s.numbers[n-2]) / 2
		if s.finite || v < largest+half {
			return sign | uint64(n-1)
		}
		return sign | s.above
	}
	if s.numbers[i] != v && (v-s.numbers[i-1] < s.numbers[i]-v || v-s.numbers[i-1] == s.numbers[i]-v && i%2 == 1) {
		i--
	}
	return sign | uint64(i)
}

// TestFormats rounds numbers to small formats, and widens all that there are.
func TestFormats(t *testing.T) {
	bf16, f16, e4m3, e5m2 := newSmall(8, 7, true, false), newSmall(5, 10, true, false), newSmall(4, 3, false, true), newSmall(5, 2, true, true)
	for form, to := range map[string]struct {
		s     small
		shift int
		nan   uint64
	}{
		"cvt.rn.bf16x2.f32 R, %f3, %f4":           {bf16, 16, 0x7fff},
		"cvt.rn.f16x2.f32 R, %f3, %f4":            {f16, 16, 0x7fff},
		"cvt.rn.satfinite.e4m3x2.f32 H, %f3, %f4": {e4m3, 8, 0x7f},
		"cvt.rn.satfinite.e5m2x2.f32 H, %f3, %f4": {e5m2, 8, 0x7f},
	} {
		round := func(v uint64) uint64 {
			if float(v) != float(v) {
				return to.nan
			}
			return to.s.nearest(float(v))
		}
		arithmetic(t, form, func(a, b, _ uint64) (uint64, bool) { return round(a)<<to.shift | round(b), true })
	}
	narrow := func(s small) func(a, _, _ uint64) (uint64, bool) {
		return func(a, _, _ uint64) (uint64, bool) { return s.nearest(float(a)), float(a) == float(a) }
	}
	arithmetic(t, "cvt.rn.bf16.f32 H, %f3", narrow(bf16))
	arithmetic(t, "cvt.rn.f16.f32 H, %f3", narrow(f16))
	value := func(s small, v uint64) (float64, bool) {
		size := v &^ s.sign
		if size >= uint64(len(s.numbers)) {
			return 0, false
		}
		if v&s.sign != 0 {
			return -s.numbers[size], true
		}
		return s.numbers[size], true
	}
	arithmetic(t, "cvt.f32.f16 F, %h3", func(a, _, _ uint64) (uint64, bool) {
		v, ok := value(f16, a&0xffff)
		return uint64(math.Float32bits(float32(v))), ok
	})
	arithmetic(t, "cvt.rn.f16x2.e4m3x2 R, %h3", func(a, _, _ uint64) (uint64, bool) {
		x, ok1 := value(e4m3, a&0xff)
		y, ok2 := value(e4m3, a>>8&0xff)
		return f16.nearest(x) | f16.nearest(y)<<16, ok1 && ok2
	})
	for form, s := range map[string]small{"fma.rn.bf16x2 R, %r3, %r4, %r5": bf16, "fma.rn.f16x2 R, %r3, %r4, %r5": f16} {
		arithmetic(t, form, func(a, b, c uint64) (out uint64, know bool) {
			for shift := 0; shift < 32; shift += 16 {
				x, ok1 := value(s, a>>shift&0xffff)
				y, ok2 := value(s, b>>shift&0xffff)
				z, ok3 := value(s, c>>shift&0xffff)
				v := x*y + z
				if !ok1 || !ok2 || !ok3 || v == 0 || v-z != x*y || v-x*y != z { // else float64 rounds, too
					return 0, false
				}
				out |= s.nearest(v) << shift
			}
			return out, true
		})
	}
}

// TestProducts multiplies matrices, laid out as the PTX ISA says, by mma.sync.
func TestProducts(t *testing.T) {
	f16, e4m3 := newSmall(5, 10, true, false), newSmall(4, 3, false, true)
	for _, c := range []struct {
		shape, sums string
		k, bits     int
		one         func(i int) uint64 // the bits of a value
	}{
		{"m16n8k16", "f32.bf16.bf16.f32", 16, 16, func(i int) uint64 { return uint64(math.Float32bits(float32(i)) >> 16) }},
		{"m16n8k8", "f32.bf16.bf16.f32", 8, 16, func(i int) uint64 { return uint64(math.Float32bits(float32(i)) >> 16) }},
		{"m16n8k16", "f32.f16.f16.f32", 16, 16, func(i int) uint64 { return f16.nearest(float64(i)) }},
		{"m16n8k32", "f32.e4m3.e4m3.f32", 32, 8, func(i int) uint64 { return e4m3.nearest(float64(i)) }},
		{"m16n8k32", "s32.s8.s8.s32", 32, 8, func(i int) uint64 { return uint64(uint8(int8(i))) }},
	} {
		a := func(row, k int) int { return (row*7+k*3)%15 - 7 }
		b := func(k, n int) int { return (k*5+n*11)%15 - 7 }
		sum := func(row, n int) int { return row*8 + n }
		each, groups := 32/c.bits, c.k*c.bits/128
		in := make([]byte, 64*32)
		for lane := range 32 {
			g, inGroup := lane/4, lane%4
			put := func(register int, v uint64) { binary.LittleEndian.PutUint32(in[64*lane+4*register:], uint32(v)) }
			for i := range groups {
				var lo, hi, right uint64
				for e := range each {
					k := i*4*each + inGroup*each + e
					lo |= c.one(a(g, k)) << (e * c.bits)
					hi |= c.one(a(g+8, k)) << (e * c.bits)
					right |= c.one(b(k, g)) << (e * c.bits)
				}
				put(2*i, lo)
				put(2*i+1, hi)
				put(4+i, right)
			}
			for i := range 4 {
				v := sum(g+i/2*8, inGroup*2+i%2)
				if c.sums[0] == 's' {
					put(6+i, uint64(v))
				} else {
					put(6+i, uint64(math.Float32bits(float32(v))))
				}
			}
		}
		left, right := "%r10, %r11, %r12, %r13", "%r14, %r15"
		if groups == 1 {
			left, right = "%r10, %r11", "%r14"
		}
		x := newBench(t, "mul.wide.u32 %d3, %r1, 64; add.s64 %d3, %d3, %d1; ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d3]; ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%d3+16]; ld.global.v2.u32 {%r18, %r19}, [%d3+32];\n"+
			"mma.sync.aligned."+c.shape+".row.col."+c.sums+" {%r20, %r21, %r22, %r23}, {"+left+"}, {"+right+"}, {%r16, %r17, %r18, %r19};\n"+
			"mul.wide.u32 %d3, %r1, 16; add.s64 %d3, %d3, %d2; st.global.v4.u32 [%d3], {%r20, %r21, %r22, %r23}; ret;", in, 16*32)
		if err := x.run(); err != nil {
			t.Fatal(err)
		}
		got := words(x.out.Bytes)
		for i, v := range got {
			lane, r := i/4, i%4
			row, n := lane/4+r/2*8, lane%4*2+r%2
			want := float64(sum(row, n))
			for k := range c.k {
				want += float64(a(row, k) * b(k, n))
			}
			have := float64(math.Float32frombits(v))
			if c.sums[0] == 's' {
				have = float64(int32(v))
			}
			if have != want {
				t.Errorf("%s.%s: row %d column %d is %g, want %g", c.shape, c.sums, row, n, have, want)
				break
			}
		}
	}
}
