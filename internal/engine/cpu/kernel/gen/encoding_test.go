package main

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// encodings are what generators ask for, beside the bytes and the text that binutils
// gives for them.
func encodings() []struct{ got, bytes, text string } {
	one := func(write func(t *text)) string {
		var t text
		write(&t)
		return t.String()
	}
	dot := func(dst, a, b int) string { return one(func(t *text) { t.dotPairs(dst, a, b) }) }
	narrow := func(dst, src int) string { return one(func(t *text) { t.narrowPairs(dst, src) }) }
	load := func(tile int, base, index string, off int) string {
		return one(func(t *text) { t.tileLoad(tile, base, index, off) })
	}
	store := func(tile int, base, index string, off int) string {
		return one(func(t *text) { t.tileStore(tile, base, index, off) })
	}
	config := func(base string) string { return one(func(t *text) { t.tileConfig(base) }) }
	zero := func(tile int) string { return one(func(t *text) { t.tileZero(tile) }) }
	tile := func(dst, a, b int) string { return one(func(t *text) { t.tileDot(dst, a, b) }) }
	signed := func(dst, a, b int) string { return one(func(t *text) { t.tileDotSigned(dst, a, b) }) }
	unsigned := func(dst, a, b int) string { return one(func(t *text) { t.tileDotUnsigned(dst, a, b) }) }
	return []struct{ got, bytes, text string }{
		{dot(0, 0, 0), "62f27e4852c0", "vdpbf16ps %zmm0,%zmm0,%zmm0"},
		{dot(0, 1, 2), "62f2764852c2", "vdpbf16ps %zmm2,%zmm1,%zmm0"},
		{dot(23, 24, 26), "62823e4052fa", "vdpbf16ps %zmm26,%zmm24,%zmm23"},
		{dot(8, 31, 7), "6272064052c7", "vdpbf16ps %zmm7,%zmm31,%zmm8"},
		{dot(16, 15, 8), "62c2064852c0", "vdpbf16ps %zmm8,%zmm15,%zmm16"},
		{dot(31, 16, 17), "62227e4052f9", "vdpbf16ps %zmm17,%zmm16,%zmm31"},
		{narrow(4, 4), "62f27e4872e4", "vcvtneps2bf16 %zmm4,%ymm4"},
		{narrow(19, 30), "62827e4872de", "vcvtneps2bf16 %zmm30,%ymm19"},
		{config("AX"), "c4e2784900", "ldtilecfg (%rax)"},
		{config("DX"), "c4e2784902", "ldtilecfg (%rdx)"},
		{config("R9"), "c4c2784901", "ldtilecfg (%r9)"},
		{one((*text).tileRelease), "c4e27849c0", "tilerelease"},
		{zero(0), "c4e27b49c0", "tilezero %tmm0"},
		{zero(5), "c4e27b49e8", "tilezero %tmm5"},
		{load(4, "AX", "SI", 0), "c4e27b4b2430", "tileloadd (%rax,%rsi,1),%tmm4"},
		{load(7, "BX", "DI", 64), "c4e27b4b7c3b40", "tileloadd 0x40(%rbx,%rdi,1),%tmm7"},
		{load(1, "R10", "R11", 0), "c4827b4b0c1a", "tileloadd (%r10,%r11,1),%tmm1"},
		{load(0, "R13", "CX", 0), "c4c27b4b440d00", "tileloadd 0x0(%r13,%rcx,1),%tmm0"},
		{load(6, "BP", "R15", 0), "c4a27b4b743d00", "tileloadd 0x0(%rbp,%r15,1),%tmm6"},
		{store(0, "R12", "DI", 0), "c4c27a4b043c", "tilestored %tmm0,(%r12,%rdi,1)"},
		{store(3, "BX", "DI", 64), "c4e27a4b5c3b40", "tilestored %tmm3,0x40(%rbx,%rdi,1)"},
		{store(2, "R8", "R9", -128), "c4827a4b540880", "tilestored %tmm2,-0x80(%r8,%r9,1)"},
		{load(5, "AX", "SI", -128), "c4e27b4b6c3080", "tileloadd -0x80(%rax,%rsi,1),%tmm5"},
		{load(6, "BX", "R9", 256), "c4a27b4bb40b00010000", "tileloadd 0x100(%rbx,%r9,1),%tmm6"},
		{load(7, "R13", "R9", -1280), "c4827b4bbc0d00fbffff", "tileloadd -0x500(%r13,%r9,1),%tmm7"},
		{store(1, "R13", "DX", 1024), "c4c27a4b8c1500040000", "tilestored %tmm1,0x400(%r13,%rdx,1)"},
		{tile(0, 4, 6), "c4e24a5cc4", "tdpbf16ps %tmm6,%tmm4,%tmm0"},
		{tile(3, 5, 7), "c4e2425cdd", "tdpbf16ps %tmm7,%tmm5,%tmm3"},
		{tile(7, 2, 1), "c4e2725cfa", "tdpbf16ps %tmm1,%tmm2,%tmm7"},
		{signed(0, 4, 6), "c4e24b5ec4", "tdpbssd %tmm6,%tmm4,%tmm0"},
		{signed(1, 5, 7), "c4e2435ecd", "tdpbssd %tmm7,%tmm5,%tmm1"},
		{unsigned(0, 4, 6), "c4e2495ec4", "tdpbusd %tmm6,%tmm4,%tmm0"},
		{unsigned(7, 2, 1), "c4e2715efa", "tdpbusd %tmm1,%tmm2,%tmm7"},
	}
}

var byteOf = regexp.MustCompile(`BYTE \$0x([0-9A-F]{2})`)

// TestEncodings compares with recorded bytes, and where objdump is installed with
// what it reads in them.
func TestEncodings(t *testing.T) {
	var all []byte
	for _, e := range encodings() {
		var got strings.Builder
		for _, m := range byteOf.FindAllStringSubmatch(e.got, -1) {
			got.WriteString(strings.ToLower(m[1]))
		}
		if got.String() != e.bytes {
			t.Errorf("%s is %s, want %s", e.text, got.String(), e.bytes)
		}
		code, err := hex.DecodeString(e.bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, code...)
	}
	t.Run("objdump", func(t *testing.T) { testObjdump(t, all) })
}

func testObjdump(t *testing.T, code []byte) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("objdump is not installed")
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn", file).Output()
	if err != nil {
		t.Skip("objdump does not know this processor: ", err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if _, text, ok := strings.Cut(line, ":\t"); ok {
			got = append(got, strings.Join(strings.Fields(text), " "))
		}
	}
	want := encodings()
	if len(got) != len(want) {
		t.Fatalf("objdump sees %d instructions, want %d: %q", len(got), len(want), got)
	}
	for i, text := range got {
		if text != want[i].text {
			t.Errorf("%s reads %q, want %q", want[i].bytes, text, want[i].text)
		}
	}
}
