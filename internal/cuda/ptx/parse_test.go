package ptx_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/ptx"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
)

const head = ".version 7.8\n.target sm_80\n.address_size 64\n"

// kernel is a module of one kernel with such a body, which begins in line 6.
func kernel(body string) string {
	return head + ".visible .entry k(.param .u64 at, .param .align 8 .b8 more[12], .param .u16 last)\n.maxntid 64, 2\n{ " + body + "\n}\n"
}

// All that is shipped is understood.
func TestShipped(t *testing.T) {
	probes, err := filepath.Glob("../../lab/gpucheck/probe/*.ptx")
	if err != nil || len(probes) == 0 {
		t.Fatal(probes, err)
	}
	all := kernels.Modules()
	for _, path := range probes {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kernels.NewModule(path, text))
	}
	all = append(all, kernels.NewModule("axpy", drivertest.PTX))
	for _, m := range all {
		parsed, err := ptx.Parse(m.Name+".ptx", m.PTX)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, k := range m.Kernels {
			f := parsed.Function(k)
			if f == nil || len(f.Body) < 5 || len(f.Params) == 0 || len(f.Registers) == 0 {
				t.Errorf("%s: kernel %s is %+v", m.Name, k, f)
			}
		}
	}
}

func TestParse(t *testing.T) {
	m, err := ptx.Parse("k.ptx", []byte(`.version 8.0
.target sm_90a, debug
.address_size 64
.file 1 "k.cu", 17, 4
.global .align 4 .b16 table[4] = {1, -2, 0x10};
.extern .shared .align 128 .b8 dynamic[];
.entry k(.param .u64 .ptr .global .align 8 at, .param .align 8 .b8 more[12], .param .u16 last)
.reqntid 64, 2
{
	.reg .pred %p<3>;
	.reg .b32 %r<4>, lone;
	.shared .align 16 .b8 own[64];
	/* a comment
	*/ .loc 1 33 5
	@!%p1 ld.shared.v2.u32 {%r1, lone}, [own+-8];
	{
		.reg .b32 %r<2>; // others
		bra.uni OUT;
		setp.lt.s32 %p2|_, %r1, !%p1;
		OUT:
	}
	bra OUT;
	mov.f32 %r3, -0f3F800000;
	mov.u32 %r2, %tid.x;
OUT:
	ret;
}
`))
	if err != nil {
		t.Fatal(err)
	}
	f := m.Function("k")
	check := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	check("version", m.Version, "8.0")
	check("target", m.Target, "sm_90a")
	check("table", string(m.Variables[0].Init), "\x01\x00\xfe\xff\x10\x00")
	check("bytes of table", m.Variables[0].Bytes, int64(8))
	if want := (ptx.Variable{Name: "dynamic", Space: "shared", Type: ptx.B8, Align: 128, Extern: true, Line: 6}); !reflect.DeepEqual(*m.Variables[1], want) {
		t.Errorf("dynamic is %+v", *m.Variables[1])
	}
	check("place of the last parameter", f.Params[2].Offset, int64(20))
	check("bytes of parameters", f.ParamBytes, int64(22))
	check("threads", f.MaxThreads, [3]int{64, 2, 1})
	check("instructions", len(f.Body), 7)
	load := f.Body[0]
	check("opcode", load.String(), "ld.shared.v2.u32")
	check("line", load.Line, 15)
	check("source", load.Source, ptx.Location{File: "k.cu", Line: 33})
	check("guard", f.Registers[load.Guard].Name, "%p1")
	check("negated", load.Negated, true)
	check("offset", int64(load.Operands[1].Bits), int64(-8))
	check("base", load.Operands[1].Elements[0].Variable.Name, "own")
	check("inner jump", f.Body[1].Operands[0].Target, 3)
	check("outer jump", f.Body[3].Operands[0].Target, 6)
	check("-1", f.Body[4].Operands[1].Bits, uint64(0xbf800000))
	check("special", f.Body[5].Operands[1].Name, "tid.x")
	var names []string
	for _, r := range f.Registers {
		names = append(names, r.Name)
	}
	if want := []string{"%p1", "%r1", "lone", "%p2", "%r1", "%r3", "%r2"}; !slices.Equal(names, want) {
		t.Errorf("registers %q, want %q", names, want)
	}
}

// What is not understood is refused, with its line.
func TestParseErrors(t *testing.T) {
	deep := strings.Repeat("{", 100)
	for _, c := range []struct{ text, want string }{
		{"", "k.ptx:1: no .version"},
		{"# 5", "k.ptx:1: the character '#'"},
		{head + ".func f() {}", `k.ptx:4: ".func" is not understood`},
		{head + "/* no end", "k.ptx:4: a comment"},
		{head + ".address_size 32", "k.ptx:4: addresses of 32 bits"},
		{head + ".global .u32 a[0];", "k.ptx:4: variable a has no bytes"},
		{head + ".global .u32 a = {1, 2};", "more values than elements"},
		{head + ".global .b8 a[1000000000][1000000000];", "has more than"},
		{head + ".shared .align 3 .b8 a[4];", "an alignment of 3"},
		{kernel("bra AWAY;"), "AWAY of line 6 is neither a label"},
		{kernel("L: L: ret;"), "k.ptx:6: a second label L"},
		{kernel(".reg .b7 %r<2>;"), `registers of type ".b7"`},
		{kernel(".reg .b32 %r<2>; @%r1 ret;"), "%r1 is no predicate"},
		{kernel(".reg .b32 %r<2>; mov.u32 %r1, %r2 ret;"), `"ret", where ',' should be`},
		{kernel("ld.u32 [unknown];"), "an address that begins with"},
		{kernel("mov.f32 0f3F80;"), `the number "0f3F80"`},
		{kernel("mov.u32 99999999999999999999;"), "is not understood"},
		{kernel("mov.u32 09;"), "is not understood"},
		{kernel(deep), "nested too deeply"},
		{kernel("mov.u32 " + strings.Repeat("[", 100)), "nested too deeply"},
		{kernel(".section .debug;"), `".section" is not understood`},
		{kernel("ret"), "k.ptx:7:"},
	} {
		_, err := ptx.Parse("k.ptx", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "k.ptx:") {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(drivertest.PTX)
	f.Add([]byte(kernel(".reg .pred p; .reg .b32 %r<3>; @!p ld.shared.v2.u32 {%r1, _}, [at+-8, {%r2, 1}]; { L: bra L; } setp.lt.s32 p|p, !p, -0d3ff0000000000000;")))
	f.Add([]byte(head + ".const .align 16 .f32 c[2][2] = {{1, 0f00000000}, 2}; .extern .shared .b8 s[]; .file 1 \"a\", 2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ptx.Parse("fuzz.ptx", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.ptx:") {
				t.Errorf("%v has no line", err)
			}
			return
		}
		for _, f := range m.Functions {
			for _, in := range f.Body {
				for _, o := range in.Operands {
					if o.Kind == ptx.Label && (o.Target < 0 || o.Target > len(f.Body)) || o.Kind == ptx.InRegister && o.Register >= len(f.Registers) {
						t.Errorf("%s: operand %+v", f.Name, o)
					}
				}
			}
		}
	})
}
