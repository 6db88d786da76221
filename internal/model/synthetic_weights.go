package model

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// fillElems is the number of elements that are made at a time. Each such chunk of a
// tensor has its own random sequence, so chunks can be made in any order.
const fillElems = 1 << 16

// chunksPerWrite is the number of chunks that are written with one call.
const chunksPerWrite = 16

// weightWriter writes the weights of a synthetic checkpoint.
type weightWriter struct {
	spec   Synthetic
	config Config
	to     sink
	known  int // tokens that the tokenizer uses
}

// piece is a part of a tensor to be written to a file.
type piece struct {
	file   *os.File
	at     int64 // byte offset in the file of the tensor's first element
	tensor TensorSpec
	first  int // index of the first element
	count  int
}

// write writes one weight file, or shards and their index.
func (w weightWriter) write() error {
	shards := split(w.config.tensors(w.spec.naming(w.config)), w.spec.Shards)
	if len(shards) == 1 {
		_, err := w.writeShard(safetensors.SingleName, shards[0])
		return err
	}
	weightMap := make(map[string]string)
	var total int64
	for i, tensors := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		size, err := w.writeShard(name, tensors)
		if err != nil {
			return err
		}
		total += size
		for _, t := range tensors {
			weightMap[t.Name] = name
		}
	}
	index, err := marshal(map[string]any{
		"metadata":   map[string]any{"total_size": total},
		"weight_map": weightMap,
	})
	if err != nil {
		return err
	}
	return w.to.put(safetensors.IndexName, index)
}

// split divides the list into at most n runs of about equal size in elements.
func split(tensors []TensorSpec, n int) [][]TensorSpec {
	total := 0
	for _, t := range tensors {
		total += t.elems()
	}
	var shards [][]TensorSpec
	done, start := 0, 0
	for i, t := range tensors {
		done += t.elems()
		if done*n >= total*(len(shards)+1) || i == len(tensors)-1 {
			shards = append(shards, tensors[start:i+1])
			start = i + 1
		}
	}
	return shards
}

func (t TensorSpec) elems() int { return elems(t.Shape) }

func elems(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// writeShard writes one weight file with all processors and returns the size of
// its data part in bytes.
func (w weightWriter) writeShard(name string, tensors []TensorSpec) (int64, error) {
	var layout safetensors.Layout
	offsets := make([]int64, len(tensors))
	for i, t := range tensors {
		var err error
		if offsets[i], err = layout.Add(t.Name, w.spec.weightType(), t.Shape...); err != nil {
			return 0, err
		}
	}
	header := layout.Header(map[string]string{"format": "pt"})
	file, err := w.to.create(name, int64(len(header))+layout.Size())
	if err != nil {
		return 0, err
	}
	g := new(errgroup.Group)
	g.SetLimit(runtime.GOMAXPROCS(0))
	g.Go(func() error {
		_, err := file.WriteAt(header, 0)
		return err
	})
	for i, t := range tensors {
		for first, n := 0, t.elems(); first < n; first += chunksPerWrite * fillElems {
			p := piece{file, int64(len(header)) + offsets[i], t, first, min(chunksPerWrite*fillElems, n-first)}
			g.Go(func() error { return w.writePiece(p) })
		}
	}
	return layout.Size(), errors.Join(g.Wait(), file.Close())
}

func (w weightWriter) writePiece(p piece) error {
	dtype := w.spec.weightType()
	size := int(dtype.Bits() / 8)
	out := make([]byte, 0, p.count*size)
	values := make([]float32, min(fillElems, p.count))
	for first := p.first; first < p.first+p.count; first += fillElems {
		values = values[:min(fillElems, p.first+p.count-first)]
		w.fill(p.tensor, first, values)
		out = appendElems(out, values, dtype)
	}
	_, err := p.file.WriteAt(out, p.at+int64(p.first*size))
	return err
}
