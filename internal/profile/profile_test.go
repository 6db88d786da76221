package profile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// example is a worker whose figures are easy to compute by hand.
func example() *Profile {
	return &Profile{
		Version: Version, Devices: 2,
		Limits:    Limits{KVBlocks: 1000, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 100, MaxContext: 4096},
		Step:      Costs{Step: 10e-3, Decode: 1e-3, DecodeContext: 1e-6, Token: 2e-4, ChunkContext: 1e-7},
		KV:        KV{BytesPerToken: 1000, Bandwidth: 1e6, Latency: 1e-3},
		Overheads: Overheads{Frontend: 2e-3, Delivery: 1e-3, Startup: 30, Flip: 5},
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestPredictionsFromCosts(t *testing.T) {
	p := example()
	w := Work{}
	w.Add(50, 1)  // attends to 51 positions
	w.Add(9, 1)   // to 10
	w.Add(20, 30) // to 21, 22, ... 50: 30*20+30*31/2 = 1065
	if want := (Work{2, 61, 30, 1065}); w != want {
		t.Fatalf("work %+v, want %+v", w, want)
	}
	near(t, "step", p.StepSeconds(w), 10e-3+2e-3+61e-6+30*2e-4+1065e-7)
	// 150 tokens: chunks of 100 and 50.
	chunks := 2*10e-3 + 150*2e-4 + 1e-7*(100*101/2+50*100+50*51/2)
	near(t, "TTFT", p.TTFT(150), chunks+3e-3)
	near(t, "prefill throughput", p.PrefillThroughput(150), 150/chunks)
	for _, isl := range []int{1, 2, 99, 100, 101, 200, 201, 350} {
		for _, most := range []int{1, 2, 100} {
			p.Limits.MaxBatchTokens = most
			sum := 3e-3
			for start := 0; start < isl; start += most {
				var w Work
				w.Add(start, min(most, isl-start))
				sum += p.StepSeconds(w)
			}
			near(t, fmt.Sprintf("TTFT of %d in chunks of %d", isl, most), p.TTFT(isl), sum)
		}
	}
	near(t, "ITL", p.ITL(4000, 1000), 10e-3+4*1e-3+4000e-6)
	near(t, "ITL of one sequence", p.ITL(0, 1000), 10e-3+1e-3+1000e-6)
	near(t, "transfer rate", p.KV.TransferRate(), 1000)
	// 8 sequences of 1000 tokens: 10 + 8 + 8 ms; the pool of 16000 has more room.
	speed, kv, ok := p.BestDecodeThroughput(1, 1000)
	near(t, "speed", speed, 8/26e-3)
	near(t, "KV", kv, 8000)
	if !ok {
		t.Error("a limit of a second is not kept")
	}
	// At 20 ms: 10 + n + n = 20 gives 5 sequences, to the step of the grid below.
	speed, kv, ok = p.BestDecodeThroughput(20e-3, 1000)
	if n := kv / 1000; !ok || n > 5 || n < 4.92 {
		t.Errorf("%v sequences at %v tokens/s, %t", n, speed, ok)
	}
	if speed, kv, ok = p.BestDecodeThroughput(11e-3, 1000); ok || kv != 1000 || math.Abs(speed-1/12e-3) > 1e-9 {
		t.Errorf("%v tokens/s with %v in the pool, %t: want the least use", speed, kv, ok)
	}
}

func TestReadsWhatItWrites(t *testing.T) {
	p := example()
	p.Fitted = &Quality{Samples: 3, Unseen: []string{"token_s"}}
	p.Measured.Prefill = &PrefillTable{[]float64{1, 2}, []float64{3, 4}, []float64{5, 6}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := got.Write(&again); err != nil || again.String() != text {
		t.Errorf("%v; written again:\n%s\nwant\n%s", err, again.String(), text)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, spoil := range map[string]func(*Profile){
		"version: 2 is not 1":                        func(p *Profile) { p.Version = 2 },
		"devices: 0":                                 func(p *Profile) { p.Devices = 0 },
		"limits.kv_blocks: 0":                        func(p *Profile) { p.Limits.KVBlocks = 0 },
		"limits.kv_blocks: 1073741824 blocks of 16":  func(p *Profile) { p.Limits.KVBlocks = 1 << 30 },
		"limits.block_size: -1":                      func(p *Profile) { p.Limits.BlockSize = -1 },
		"limits.max_num_seqs":                        func(p *Profile) { p.Limits.MaxSeqs = 0 },
		"limits.max_num_batched_tokens":              func(p *Profile) { p.Limits.MaxBatchTokens = 0 },
		"limits.max_model_len":                       func(p *Profile) { p.Limits.MaxContext = 0 },
		"limits.itl_target_s: -1":                    func(p *Profile) { p.Limits.ITLTarget = -1 },
		"step.step_s: NaN":                           func(p *Profile) { p.Step.Step = math.NaN() },
		"step.token_s: -1":                           func(p *Profile) { p.Step.Token = -1 },
		"step: a step costs nothing":                 func(p *Profile) { p.Step = Costs{} },
		"kv.bandwidth_bytes_per_s: KV of 1000 bytes": func(p *Profile) { p.KV.Bandwidth = 0 },
		"overheads.startup_s: +Inf":                  func(p *Profile) { p.Overheads.Startup = math.Inf(1) },
		"measured: prefill: no points":               func(p *Profile) { p.Measured.Prefill = &PrefillTable{} },
		"prefill.ttft_s: 1 values beside 2 of isl":   func(p *Profile) { p.Measured.Prefill = &PrefillTable{[]float64{1, 2}, []float64{1}, []float64{1, 2}} },
		"prefill.isl: 1 follows 2: lengths must grow": func(p *Profile) {
			p.Measured.Prefill = &PrefillTable{[]float64{2, 1}, []float64{1, 1}, []float64{1, 2}}
		},
		"decode.max_kv_tokens: 0": func(p *Profile) {
			p.Measured.Decode = &DecodeTable{[]float64{1}, []float64{1}, []float64{1}, []float64{1}, 0}
		},
		"decode.itl_s: value 0 is -1": func(p *Profile) {
			p.Measured.Decode = &DecodeTable{[]float64{1}, []float64{1}, []float64{-1}, []float64{1}, 1}
		},
	} {
		p := example()
		spoil(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := example().Validate(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"":                              "EOF",
		`{"version":1,"speed":2}`:       `unknown field "speed"`,
		`{"version":1}{}`:               "text follows",
		`{"version":3}`:                 "version: 3 is not 1",
		strings.Repeat(" ", maxBytes+2): "more than",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

// The files of testdata are NumPy's; see make.py there.
func TestReadsArraysOfNumPy(t *testing.T) {
	open := func(name string) *bytes.Reader {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(b)
	}
	prefill, err := ReadPrefill(open("prefill.npz"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(prefill.ISL, []float64{100, 1000, 4000, 16000}) || prefill.TTFT[2] != 0.2505 || prefill.Throughput[0] != 8000 {
		t.Errorf("%+v", prefill)
	}
	decode, err := ReadDecode(open("decode.npz"))
	if err != nil {
		t.Fatal(err)
	}
	if decode.MaxKVTokens != 64000 || !slices.Equal(decode.Context, []float64{1000, 1000, 1000, 3000, 3000, 3000}) || math.Abs(decode.ITL[5]-0.026) > 1e-15 {
		t.Errorf("%+v", decode)
	}
	if _, err := ReadDecode(open("prefill.npz")); err == nil || !strings.Contains(err.Error(), "x_kv_usage is missing") {
		t.Errorf("%v", err)
	}

	p := example()
	p.Measured = Measured{prefill, decode}
	near(t, "TTFT at a point", p.TTFT(1000), 0.06025)
	near(t, "TTFT between two", p.TTFT(2500), (0.06025+0.2505)/2)
	near(t, "TTFT below", p.TTFT(1), 0.0125)
	near(t, "TTFT beyond", p.TTFT(28000), 1.40075+1.15025)
	near(t, "prefill throughput of two devices", p.PrefillThroughput(100), 16000)
	near(t, "ITL at a point", p.ITL(32000, 1000), 0.016)
	near(t, "ITL between four", p.ITL(0.3*64000, 2000), 0.013)
	near(t, "ITL outside", p.ITL(64000, 9000), 0.026)
	// 5 + 20*use + 2 <= 20 ms at a context of 2000: use 0.65. The grid goes from one sequence
	// to 8, 2000 to 16000 tokens of 64000: all of it is below.
	if speed, kv, ok := p.BestDecodeThroughput(20e-3, 2000); !ok || kv != 16000 || speed <= 0 {
		t.Errorf("%v tokens/s with %v in the pool, %t", speed, kv, ok)
	}
	var once, twice bytes.Buffer
	if err := errors.Join(decode.Write(&once), decode.Write(&twice)); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
		t.Errorf("%v, or equal tables give other bytes", err)
	}
	var b bytes.Buffer
	_ = decode.Write(&b)
	if again, err := ReadDecode(&b); err != nil || !slices.Equal(again.Throughput, decode.Throughput) || again.MaxKVTokens != 64000 {
		t.Errorf("%+v, %v", again, err)
	}
	b.Reset()
	_ = prefill.Write(&b)
	if again, err := ReadPrefill(&b); err != nil || !slices.Equal(again.ISL, prefill.ISL) {
		t.Errorf("%+v, %v", again, err)
	}
}

// A step by tables alone costs what the whole prompt costs, shared out over its chunks.
func TestStepsFromTables(t *testing.T) {
	p := example()
	p.Step = Costs{}
	p.Measured.Prefill = &PrefillTable{ISL: []float64{1, 4000}, TTFT: []float64{1e-3, 4}, Throughput: []float64{1, 1}}
	p.Measured.Decode = &DecodeTable{[]float64{0, 1}, []float64{100, 100}, []float64{0.01, 0.02}, []float64{1, 1}, 1000}
	var w Work
	w.Add(0, 1000)
	near(t, "chunk", p.StepSeconds(w), p.TTFT(1001)/1001*1000)
	w = Work{Decodes: 5, DecodeContext: 500}
	near(t, "decode", p.StepSeconds(w), 0.015)
}

func TestRefusesArrays(t *testing.T) {
	good := formatArray("<f8", []float64{1, 2})
	if got, err := parseArray(good); err != nil || !slices.Equal(got, []float64{1, 2}) {
		t.Fatalf("%v, %v", got, err)
	}
	change := func(from, to string) []byte { return bytes.Replace(good, []byte(from), []byte(to), 1) }
	v2 := append([]byte("\x93NUMPY\x02\x00"), good[8], good[9], 0, 0)
	if got, err := parseArray(append(v2, good[10:]...)); err != nil || len(got) != 2 {
		t.Errorf("version 2: %v, %v", got, err)
	}
	for want, b := range map[string][]byte{
		"magic":                 []byte("PK\x03\x04......"),
		"version 3.0":           change("NUMPY\x01", "NUMPY\x03"),
		`type ">f8"`:            change("<f8", ">f8"),
		`type "|O8"`:            change("<f8", "|O8"),
		"header":                change("'descr'", "'error'"),
		"order of Fortran":      change("False, 'shape': (2,), } ", "True, 'shape': (2,), }  "),
		"2 dimensions":          change("(2,), }  ", "(2, 1), }"),
		"16 bytes for 3 values": change("(2,)", "(3,)"),
		"more than":             change("(2,), }       ", "(99999999,), }"),
		"ends too soon":         good[:20],
	} {
		if _, err := parseArray(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRefusesArchives(t *testing.T) {
	one := []float64{1}
	for want, arrays := range map[string][]array{
		"prefill_ttft is missing":          {{prefillISL, one}},
		"prefill_isl stands there twice":   {{prefillISL, one}, {prefillISL, one}, {prefillTTFT, one}, {prefillThroughput, one}},
		"1 values beside 2 of isl":         {{prefillISL, []float64{1, 2}}, {prefillTTFT, one}, {prefillThroughput, one}},
		"17 members are more than 16":      slices.Repeat([]array{{prefillISL, one}}, 17),
		"isl: value 0 is NaN, not between": {{prefillISL, []float64{math.NaN()}}, {prefillTTFT, one}, {prefillThroughput, one}},
	} {
		var b bytes.Buffer
		if err := writeArrays(&b, arrays...); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPrefill(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, tokens := range []int{0, -1, 1} {
		var b bytes.Buffer
		_ = writeArrays(&b, array{decodeUsage, one}, array{decodeContext, one}, array{decodeITL, one}, array{decodeThroughput, one}, array{"x", nil})
		if _, err := ReadDecode(&b); err == nil || !strings.Contains(err.Error(), "max_kv_tokens is missing") {
			t.Errorf("%v", err)
		}
		b.Reset()
		_ = (&DecodeTable{one, one, one, one, tokens}).Write(&b)
		if _, err := ReadDecode(&b); err == nil && tokens < 1 || err != nil && !strings.Contains(err.Error(), "max_kv_tokens") {
			t.Errorf("%v: %v", tokens, err)
		}
	}
}

func FuzzReadArrays(f *testing.F) {
	for _, name := range []string{"prefill.npz", "decode.npz"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(formatArray("<f8", []float64{1, math.NaN()}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ReadPrefill(bytes.NewReader(b))
		if d, err := ReadDecode(bytes.NewReader(b)); err == nil {
			if v := d.itl(100, 100); !(v >= 0) {
				t.Errorf("ITL %v", v)
			}
		}
		if a, err := parseArray(b); err == nil && len(a) > maxPoints {
			t.Errorf("%d values", len(a))
		}
	})
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = example().Write(&b)
	f.Add(b.String())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		if v := p.TTFT(1000); !(v >= 0) {
			t.Errorf("TTFT %v of %s", v, text)
		}
	})
}
