package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestNEONEncodings compares with words that the GNU assembler made.
func TestNEONEncodings(t *testing.T) {
	tests := []struct {
		name     string
		operands []int
		want     uint32
		text     string
	}{
		{"fadd", []int{1, 2, 3}, 0x4E23D441, "fadd v1.4s, v2.4s, v3.4s"},
		{"fadd", []int{31, 30, 29}, 0x4E3DD7DF, "fadd v31.4s, v30.4s, v29.4s"},
		{"fsub", []int{1, 2, 3}, 0x4EA3D441, "fsub v1.4s, v2.4s, v3.4s"},
		{"fmul", []int{1, 2, 3}, 0x6E23DC41, "fmul v1.4s, v2.4s, v3.4s"},
		{"fdiv", []int{1, 2, 3}, 0x6E23FC41, "fdiv v1.4s, v2.4s, v3.4s"},
		{"fcmgt", []int{1, 2, 3}, 0x6EA3E441, "fcmgt v1.4s, v2.4s, v3.4s"},
		{"fcmeq", []int{1, 2, 3}, 0x4E23E441, "fcmeq v1.4s, v2.4s, v3.4s"},
		{"sxtl2 8h", []int{1, 2}, 0x4F10A441, "sxtl2 v1.4s, v2.8h"},
		{"shll", []int{1, 2}, 0x2E613841, "shll v1.4s, v2.4h, #16"},
		{"shll2", []int{1, 2}, 0x6E613841, "shll2 v1.4s, v2.8h, #16"},
		{"fcmge", []int{1, 2, 3}, 0x6E23E441, "fcmge v1.4s, v2.4s, v3.4s"},
		{"bic", []int{1, 2, 3}, 0x4E631C41, "bic v1.16b, v2.16b, v3.16b"},
		{"fneg", []int{1, 2}, 0x6EA0F841, "fneg v1.4s, v2.4s"},
		{"frintm", []int{1, 2}, 0x4E219841, "frintm v1.4s, v2.4s"},
		{"fcvtzs", []int{1, 2}, 0x4EA1B841, "fcvtzs v1.4s, v2.4s"},
		{"fcvtl", []int{1, 2}, 0x0E217841, "fcvtl v1.4s, v2.4h"},
		{"fcvtl2", []int{1, 2}, 0x4E217841, "fcvtl2 v1.4s, v2.8h"},
		{"movi", []int{5}, 0x6F00E405, "movi v5.2d, #0x0"},
		{"faddp", []int{1, 2}, 0x7E30D841, "faddp s1, v2.2s"},
		{"sshr", []int{1, 2, 1}, 0x4F3F0441, "sshr v1.4s, v2.4s, #1"},
		{"sshr", []int{1, 2, 32}, 0x4F200441, "sshr v1.4s, v2.4s, #32"},
		{"fmla lane", []int{1, 2, 3, 0}, 0x4F831041, "fmla v1.4s, v2.4s, v3.s[0]"},
		{"fmla lane", []int{1, 2, 19, 1}, 0x4FB31041, "fmla v1.4s, v2.4s, v19.s[1]"},
		{"fmla lane", []int{31, 30, 29, 2}, 0x4F9D1BDF, "fmla v31.4s, v30.4s, v29.s[2]"},
		{"fmla lane", []int{1, 2, 3, 3}, 0x4FA31841, "fmla v1.4s, v2.4s, v3.s[3]"},
		{"fmls lane", []int{1, 2, 3, 1}, 0x4FA35041, "fmls v1.4s, v2.4s, v3.s[1]"},
		{"fmls lane", []int{1, 2, 3, 2}, 0x4F835841, "fmls v1.4s, v2.4s, v3.s[2]"},
		{"fmul lane", []int{1, 2, 3, 0}, 0x4F839041, "fmul v1.4s, v2.4s, v3.s[0]"},
		{"fmul lane", []int{1, 2, 3, 3}, 0x4FA39841, "fmul v1.4s, v2.4s, v3.s[3]"},
		{"sdot", []int{1, 2, 3, 0}, 0x4F83E041, "sdot v1.4s, v2.16b, v3.4b[0]"},
		{"sdot", []int{1, 2, 19, 1}, 0x4FB3E041, "sdot v1.4s, v2.16b, v19.4b[1]"},
		{"sdot", []int{31, 30, 29, 2}, 0x4F9DEBDF, "sdot v31.4s, v30.16b, v29.4b[2]"},
		{"sdot", []int{1, 2, 3, 3}, 0x4FA3E841, "sdot v1.4s, v2.16b, v3.4b[3]"},
		{"usmmla", []int{1, 2, 3}, 0x4E83AC41, "usmmla v1.4s, v2.16b, v3.16b"},
		{"usmmla", []int{31, 30, 29}, 0x4E9DAFDF, "usmmla v31.4s, v30.16b, v29.16b"},
		{"bfdot", []int{1, 2, 3, 0}, 0x4F43F041, "bfdot v1.4s, v2.8h, v3.2h[0]"},
		{"bfdot", []int{1, 2, 19, 1}, 0x4F73F041, "bfdot v1.4s, v2.8h, v19.2h[1]"},
		{"bfdot", []int{31, 30, 29, 2}, 0x4F5DFBDF, "bfdot v31.4s, v30.8h, v29.2h[2]"},
		{"bfdot", []int{1, 2, 3, 3}, 0x4F63F841, "bfdot v1.4s, v2.8h, v3.2h[3]"},
		{"bfmmla", []int{1, 2, 3}, 0x6E43EC41, "bfmmla v1.4s, v2.8h, v3.8h"},
		{"bfmmla", []int{31, 30, 29}, 0x6E5DEFDF, "bfmmla v31.4s, v30.8h, v29.8h"},
		{"smull", []int{1, 2, 3}, 0x0E23C041, "smull v1.8h, v2.8b, v3.8b"},
		{"smull2", []int{1, 2, 3}, 0x4E23C041, "smull2 v1.8h, v2.16b, v3.16b"},
		{"sadalp", []int{1, 2}, 0x4E606841, "sadalp v1.4s, v2.8h"},
		{"sxtl 8b", []int{1, 2}, 0x0F08A441, "sxtl v1.8h, v2.8b"},
		{"sxtl 4h", []int{1, 2}, 0x0F10A441, "sxtl v1.4s, v2.4h"},
		{"neg", []int{1, 2}, 0x6EA0B841, "neg v1.4s, v2.4s"},
		{"scvtf", []int{1, 2}, 0x4E21D841, "scvtf v1.4s, v2.4s"},
		{"fcvtns", []int{1, 2}, 0x4E21A841, "fcvtns v1.4s, v2.4s"},
		{"fabs", []int{1, 2}, 0x4EA0F841, "fabs v1.4s, v2.4s"},
	}
	seen := make(map[string]bool)
	for _, tt := range tests {
		seen[tt.name] = true
		if word, text := neonEncode(tt.name, tt.operands...); word != tt.want || text != tt.text {
			t.Errorf("%s is %#08x, %s; want %#08x", tt.text, word, text, tt.want)
		}
	}
	for name := range neonEncodings {
		if !seen[name] {
			t.Errorf("%s has no known word", name)
		}
	}
}

// TestNEONDisassembly gives every word of the generated files to a disassembler.
func TestNEONDisassembly(t *testing.T) {
	const objdump = "aarch64-linux-gnu-objdump"
	if _, err := exec.LookPath(objdump); err != nil {
		t.Skip(objdump + " is not installed: Debian has it in binutils-aarch64-linux-gnu")
	}
	words := make(map[uint32]string)
	var code []byte
	for name, file := range files() {
		for _, m := range regexp.MustCompile(`WORD \$0x([0-9A-F]{8}) // (.*)`).FindAllStringSubmatch(file, -1) {
			word, err := parseWord(m[1])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, ok := words[word]; !ok {
				words[word] = m[2]
				code = binary.LittleEndian.AppendUint32(code, word)
			}
		}
	}
	bin := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(bin, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), objdump, "-D", "-b", "binary", "-m", "aarch64", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^ +[0-9a-f]+:\t([0-9a-f]{8}) \t(.*)$`).FindAllStringSubmatch(string(out), -1)
	if len(lines) != len(words) || len(words) < 100 {
		t.Fatalf("%d words, %d lines", len(words), len(lines))
	}
	for _, l := range lines {
		word, err := parseWord(l[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(l[2], "\t", " "); got != words[word] {
			t.Errorf("%s is %s, not %s", l[1], got, words[word])
		}
	}
}

func parseWord(hex string) (uint32, error) {
	v, err := strconv.ParseUint(hex, 16, 32)
	return uint32(v), err
}
