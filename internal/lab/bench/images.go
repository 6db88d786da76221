package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// Column keys of this section.
const (
	keyViews   = "views_per_s"
	keyGFLOPs  = "gflops"
	keyCPUView = "cpu_ms_per_view"
)

// imagesScale holds the sizes of a measurement of images.
type imagesScale struct {
	towers      []cpuShape    // whose text models are as small as they can be
	window      time.Duration // of one encoder
	limitWindow time.Duration // of one kind of arithmetic
	encoders    turns

	model    model.Synthetic // of the requests, a LLaVA
	images   []int           // of a request
	encode   []int           // numbers of encode workers; 0: the prefill worker encodes
	streams  int             // that run meanwhile
	output   int             // tokens that they may generate: more than they can during the requests
	idle     time.Duration
	requests int // of a case, less for many images
	turns    turns
}

func measureImages(ctx context.Context, s *session) (Section, error) {
	sec := Section{
		Title: "Images",
		About: "Vision towers with random weights, in the shapes of real ones: first the encoder alone on\n" +
			"a device with all cores, then requests with images over HTTP through whole nodes inside\n" +
			"this process.",
	}
	if err := s.encoders(ctx, &sec); err != nil {
		return sec, err
	}
	dir, err := s.seeing(s.scale.images.model)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	b := &imagesBench{disaggBench: disaggBench{pathBench: p, model: dir}}
	defer b.close()
	err = b.measure(ctx, &sec)
	return sec, err
}

// encoders measures towers.
func (s *session) encoders(ctx context.Context, sec *Section) error {
	sc := s.scale.images
	cores := runtime.NumCPU()
	var cases []Case
	var peaks []string
	for _, p := range kernel.Peaks() {
		if p.Bytes {
			continue // towers compute in floating point
		}
		peaks = append(peaks, p.Name)
		cases = append(cases, peakCase(p.Name, sc.limitWindow, cores, p))
	}
	var names []string
	for _, shape := range sc.towers {
		e, err := s.newEncoderCase(shape, cores, sc.window)
		if err != nil {
			return err
		}
		defer e.close()
		names = append(names, shape.name)
		cases = append(cases, Case{shape.name, e.run})
	}
	res, err := s.takeTurns(ctx, "images, encoders", sc.encoders, cases)
	if err != nil {
		return err
	}
	for _, name := range names {
		res.derive(name, keyOfPeak, func(round map[string]Sample) (float64, bool) {
			best := 0.0
			for _, p := range peaks {
				best = max(best, round[p][keyOps])
			}
			return round[name][keyGFLOPs] / best * 100, best > 0
		})
	}
	sec.Tables = append(sec.Tables, res.table("Encoders",
		"One whole view after the other. Operations are those of the matrices and of attention.", []Column{
			{keyViews, "views/s", ""},
			{keyGFLOPs, "GFLOP/s", ""},
			{keyOfPeak, "% of peak", "against the fastest arithmetic in floating point, measured in the same rounds"},
			{keyCPUView, "CPU ms/view", "processor time of the whole process, which other programs hardly change"},
		}, names...))
	return nil
}

// encoderCase encodes one view again and again.
type encoderCase struct {
	loaded
	model  *model.Model
	remove func()
	encode func(ctx context.Context) error
	window time.Duration
	ops    float64 // of a view
}

func (s *session) newEncoderCase(shape cpuShape, cores int, window time.Duration) (_ *encoderCase, err error) {
	dir, remove, err := s.checkpoint(shape.spec)
	if err != nil {
		return nil, err
	}
	e := &encoderCase{remove: remove, window: window}
	if e.model, err = model.Open(dir, model.Options{Log: s.log}); err != nil {
		remove()
		return nil, err
	}
	if e.loaded, err = loadWeights(e.model, cores); err != nil {
		return nil, errors.Join(err, e.model.Close())
	}
	v := *e.model.Config().Vision
	e.ops = towerOps(v, e.model.Config().Hidden)
	enc, err := e.weights.NewEncoder()
	if err != nil {
		e.close()
		return nil, err
	}
	view := engine.View{W: v.ImageSize, H: v.ImageSize, Pixels: make([]float32, 3*v.ImageSize*v.ImageSize)}
	for i := range view.Pixels {
		view.Pixels[i] = float32(i%17-8) / 8
	}
	e.encode = func(ctx context.Context) error {
		_, err := enc.Encode(ctx, []engine.View{view})
		return err
	}
	return e, nil
}

func (e *encoderCase) close() {
	_ = errors.Join(e.weights.Close(), e.device.Close(), e.model.Close()) // nothing was written
	e.remove()
}

// run encodes for the length of the window, one view at least.
func (e *encoderCase) run(ctx context.Context) (Sample, error) {
	before, known := cpuTime()
	begin, views := time.Now(), 0.0
	for views == 0 || time.Since(begin) < e.window {
		if err := e.encode(ctx); err != nil {
			return nil, err
		}
		views++
	}
	rate := views / time.Since(begin).Seconds()
	s := Sample{keyViews: rate, keyGFLOPs: rate * e.ops / 1e9}
	if after, _ := cpuTime(); known {
		s[keyCPUView] = (after - before).Seconds() * 1e3 / views
	}
	return s, nil
}

// towerOps returns the operations that a whole view takes, for a text model whose embeddings
// have the given number of values.
func towerOps(v model.Vision, out int) float64 {
	patches := float64(v.Side() * v.Side())
	rows := patches
	if v.ClassToken {
		rows++
	}
	h, f := float64(v.Hidden), float64(v.FFN)
	layer := 2*(4*h*h+2*h*f)*rows + 4*rows*rows*h
	cut := 2 * 3 * float64(v.PatchSize*v.PatchSize) * h * patches
	square := float64(v.Projector.Factor * v.Projector.Factor)
	project := 2 * h * square * float64(out) * patches / square
	if v.Projector.Kind == model.ProjectMLP {
		project += 2 * float64(out*out) * patches
	}
	return cut + float64(v.Layers)*layer + project
}

// towerShapes returns towers in their own shapes, over a text model of one layer.
func towerShapes() []cpuShape {
	smol := model.SmolVLMSmall()
	smol.Layers, smol.Vocab = 1, 4096
	smol.Images = map[string]any{"vision_config": smol.Images["vision_config"], "scale_factor": 4, "image_token_id": 4090}
	clip := seeingModel(map[string]any{"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14})
	clip.Layers = 1
	return []cpuShape{{"SmolVLM-256M: 1,024 patches, 64 rows", smol}, {"CLIP-L 336: 576 patches and rows", clip}}
}
