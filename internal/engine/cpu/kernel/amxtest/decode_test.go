package amxtest

import (
	"encoding/hex"
	"testing"
)

// TestDecode reads what binutils assembles.
func TestDecode(t *testing.T) {
	const rax, rcx, rbx, rsp, rbp, rsi, rdi = 0, 1, 3, 4, 5, 6, 7
	tests := []struct {
		text, code string
		want       instruction
	}{
		{"ldtilecfg (%rax)", "c4e2784900", instruction{op: ldtilecfg, base: rax, index: none}},
		{"ldtilecfg (%r9)", "c4c2784901", instruction{op: ldtilecfg, base: 9, index: none}},
		{"ldtilecfg -0x40(%r12)", "c4c2784944 24c0", instruction{op: ldtilecfg, base: 12, index: none, offset: -64}},
		{"sttilecfg 0x8(%rsp)", "c4e279494424 08", instruction{op: sttilecfg, base: rsp, index: none, offset: 8}},
		{"tilerelease", "c4e27849c0", instruction{op: tilerelease}},
		{"tilezero %tmm5", "c4e27b49e8", instruction{op: tilezero, dst: 5}},
		{"tileloadd (%rax,%rsi,1),%tmm4", "c4e27b4b2430", instruction{op: tileloadd, dst: 4, base: rax, index: rsi}},
		{"tileloadd 0x40(%rbx,%rdi,1),%tmm7", "c4e27b4b7c3b40", instruction{op: tileloadd, dst: 7, base: rbx, index: rdi, offset: 64}},
		{"tileloadd (%r10,%r11,1),%tmm1", "c4827b4b0c1a", instruction{op: tileloadd, dst: 1, base: 10, index: 11}},
		{"tileloadd 0x12345678(%rbp,%r15,8),%tmm6", "c4a27b4bb4fd78563412", instruction{op: tileloadd, dst: 6, base: rbp, index: 15, scale: 3, offset: 0x12345678}},
		{"tileloaddt1 (%rax,%rsi,1),%tmm2", "c4e2794b1430", instruction{op: tileloadd, dst: 2, base: rax, index: rsi}},
		{"tileloadd (%rsp),%tmm2", "c4e27b4b1424", instruction{op: tileloadd, dst: 2, base: rsp, index: none}},
		{"tileloadd 0x40(,%rcx,2),%tmm2", "c4e27b4b144d40000000", instruction{op: tileloadd, dst: 2, base: none, index: rcx, scale: 1, offset: 64}},
		{"tilestored %tmm7,-0x1(%r13,%r14,4)", "c4827a4b7cb5ff", instruction{op: tilestored, dst: 7, base: 13, index: 14, scale: 2, offset: -1}},
		{"tdpbf16ps %tmm6,%tmm4,%tmm0", "c4e24a5cc4", instruction{op: tdpbf16ps, dst: 0, a: 4, b: 6}},
		{"tdpbf16ps %tmm1,%tmm2,%tmm7", "c4e2725cfa", instruction{op: tdpbf16ps, dst: 7, a: 2, b: 1}},
		{"tdpbuud %tmm3,%tmm2,%tmm1", "c4e2605eca", instruction{op: tdpbuud, dst: 1, a: 2, b: 3}},
		{"tdpbusd %tmm3,%tmm2,%tmm1", "c4e2615eca", instruction{op: tdpbusd, dst: 1, a: 2, b: 3}},
		{"tdpbsud %tmm3,%tmm2,%tmm1", "c4e2625eca", instruction{op: tdpbsud, dst: 1, a: 2, b: 3}},
		{"tdpbssd %tmm0,%tmm7,%tmm6", "c4e27b5ef7", instruction{op: tdpbssd, dst: 6, a: 7, b: 0}},
	}
	for _, tt := range tests {
		code := unhex(t, tt.code)
		got, ok := decode(append(code, 0x90, 0x90, 0x90))
		if !ok || got.size != len(code) || got.op != tt.want.op {
			t.Errorf("%s: %+v, %v", tt.text, got, ok)
			continue
		}
		switch got.op {
		case ldtilecfg, sttilecfg, tileloadd, tilestored:
			if got.base != tt.want.base || got.index != tt.want.index || got.scale != tt.want.scale || got.offset != tt.want.offset || got.dst != tt.want.dst {
				t.Errorf("%s: %+v, want %+v", tt.text, got, tt.want)
			}
		case tilerelease:
		case tilezero:
			if got.dst != tt.want.dst {
				t.Errorf("%s: %+v", tt.text, got)
			}
		default:
			if got.dst != tt.want.dst || got.a != tt.want.a || got.b != tt.want.b {
				t.Errorf("%s: %+v, want %+v", tt.text, got, tt.want)
			}
		}
		for n := range code { // cut short
			if in, ok := decode(code[:n]); ok {
				t.Errorf("%s, %d bytes of it: %+v", tt.text, n, in)
			}
		}
	}
}

func TestDecodeOthers(t *testing.T) {
	for text, code := range map[string]string{
		"vfmadd231ps %ymm0,%ymm1,%ymm2":  "c4e275b8d0",
		"andn %rax,%rbx,%rcx":            "c4e2e0f2c8",
		"vpdpbusd %zmm1,%zmm2,%zmm3":     "62f26d4850d9",
		"ldtilecfg 0x10(%rip)":           "c4e278490510000000",
		"ud2":                            "0f0b9090909090",
		"tdpbf16ps with a ninth tile":    "c4e20a5cc4",
		"tilezero with a second operand": "c4e27349e8",
		"nothing":                        "",
	} {
		if in, ok := decode(unhex(t, code)); ok {
			t.Errorf("%s: %+v", text, in)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var digits []byte
	for _, c := range []byte(s) {
		if c != ' ' {
			digits = append(digits, c)
		}
	}
	out, err := hex.DecodeString(string(digits))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
