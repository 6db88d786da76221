package profile

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"math"
)

// Bounds of a file of arrays.
const (
	maxFile    = 64 << 20 // bytes, packed
	maxMember  = 16 << 20 // bytes of one array
	maxMembers = 16
)

// Members of Dynamo's files. Times are in milliseconds there, tokens per second are per GPU.
const (
	prefillISL        = "prefill_isl"
	prefillTTFT       = "prefill_ttft"
	prefillThroughput = "prefill_thpt_per_gpu"
	decodeUsage       = "x_kv_usage"
	decodeContext     = "y_context_length"
	decodeITL         = "z_itl"
	decodeThroughput  = "z_thpt_per_gpu"
	decodeMaxKV       = "max_kv_tokens"
)

// ReadPrefill reads selected_prefill_interpolation/raw_data.npz of Dynamo's profiler.
func ReadPrefill(r io.Reader) (*PrefillTable, error) {
	a, err := readArrays(r, prefillISL, prefillTTFT, prefillThroughput)
	if err != nil {
		return nil, err
	}
	t := &PrefillTable{ISL: a[0], TTFT: scaled(a[1], 1e-3), Throughput: a[2]}
	if err := (Measured{Prefill: t}).validate(); err != nil {
		return nil, fmt.Errorf("read the arrays: %w", err)
	}
	return t, nil
}

// Write writes the table as [ReadPrefill] reads it.
func (t *PrefillTable) Write(w io.Writer) error {
	return writeArrays(w, array{prefillISL, t.ISL}, array{prefillTTFT, scaled(t.TTFT, 1e3)}, array{prefillThroughput, t.Throughput})
}

// ReadDecode reads selected_decode_interpolation/raw_data.npz of Dynamo's profiler.
func ReadDecode(r io.Reader) (*DecodeTable, error) {
	a, err := readArrays(r, decodeUsage, decodeContext, decodeITL, decodeThroughput, decodeMaxKV)
	if err != nil {
		return nil, err
	}
	most := a[4]
	if len(most) != 1 || most[0] != math.Trunc(most[0]) || !(most[0] >= 1 && most[0] <= maxCount) {
		return nil, fmt.Errorf("read the arrays: %s: %.4v is not one number of tokens", decodeMaxKV, most[:min(len(most), 4)])
	}
	t := &DecodeTable{KVUsage: a[0], Context: a[1], ITL: scaled(a[2], 1e-3), Throughput: a[3], MaxKVTokens: int(most[0])}
	if err := (Measured{Decode: t}).validate(); err != nil {
		return nil, fmt.Errorf("read the arrays: %w", err)
	}
	return t, nil
}

// Write writes the table as [ReadDecode] reads it.
func (t *DecodeTable) Write(w io.Writer) error {
	return writeArrays(w, array{decodeUsage, t.KVUsage}, array{decodeContext, t.Context}, array{decodeITL, scaled(t.ITL, 1e3)},
		array{decodeThroughput, t.Throughput}, array{decodeMaxKV, []float64{float64(t.MaxKVTokens)}})
}

func scaled(values []float64, by float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v * by
	}
	return out
}

// readArrays reads the named arrays of an archive of numpy.savez or numpy.savez_compressed.
// Others in it are not read. An array that is missing, or that stands there twice, is an error.
func readArrays(r io.Reader, names ...string) ([][]float64, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the arrays: %w", err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("read the arrays: the file has more than %d bytes", maxFile)
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("read the arrays: %w", err)
	}
	if len(z.File) > maxMembers {
		return nil, fmt.Errorf("read the arrays: %d members are more than %d", len(z.File), maxMembers)
	}
	out := make([][]float64, len(names))
	for i, name := range names {
		for _, f := range z.File {
			if f.Name != name+".npy" {
				continue
			}
			if out[i] != nil {
				return nil, fmt.Errorf("read the arrays: %s stands there twice", name)
			}
			if out[i], err = readMember(f); err != nil {
				return nil, fmt.Errorf("read the array %s: %w", name, err)
			}
		}
		if out[i] == nil {
			return nil, fmt.Errorf("read the arrays: %s is missing", name)
		}
	}
	return out, nil
}

func readMember(f *zip.File) ([]float64, error) {
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxMember+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxMember:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrArray, maxMember)
	}
	return parseArray(b)
}

type array struct {
	name   string
	values []float64
}

// writeArrays writes an archive as numpy.savez does: max_kv_tokens as int64, the rest as
// float64. Equal arrays give equal bytes.
func writeArrays(w io.Writer, arrays ...array) error {
	z := zip.NewWriter(w)
	for _, a := range arrays {
		descr := "<f8"
		if a.name == decodeMaxKV {
			descr = "<i8"
		}
		f, err := z.CreateHeader(&zip.FileHeader{Name: a.name + ".npy", Method: zip.Store})
		if err == nil {
			_, err = f.Write(formatArray(descr, a.values))
		}
		if err != nil {
			return fmt.Errorf("write the array %s: %w", a.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write the arrays: %w", err)
	}
	return nil
}
