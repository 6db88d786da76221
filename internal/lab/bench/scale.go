package bench

import (
	"time"

	"github.com/dynctl/dynctl/internal/model"
)

// scale holds the sizes of all measurements.
type scale struct {
	engine engineScale
	path   pathScale
	nixl   nixlScale
	plane  planeScale
	disagg disaggScale
	onGPUs disaggScale // the same on GPUs
	cpu    cpuScale
	images imagesScale

	accuracy accuracyScale
	router   routerScale
	fleet    fleetScale
}

type engineScale struct {
	// synthetic is measured beside the built-in model.
	synthetic model.Synthetic
	// cacheBytes is the size up to which weights may be in the processor's caches, so
	// that the speed of memory does not limit them.
	cacheBytes int64
	prefill    []int         // prompt lengths, tokens
	sequences  []int         // decoded at a time
	context    int           // tokens, of the cases with a context
	window     time.Duration // of one decode case
	caseLimit  time.Duration // a prefill that takes longer is left out
	readBytes  int           // memory that is read to learn its speed
	builtin    turns
	large      turns
}

type pathScale struct {
	prompt      int   // tokens, about
	output      int   // tokens
	concurrency []int // streams at a time
	requests    int   // per stream and round
	mockOutput  int   // tokens
	mockStreams []int
	mockAlone   int // requests of the case with one stream
	pace        time.Duration
	pacedOutput int // tokens
	pings       int // beside a busy engine
	turns       turns
}

type nixlScale struct {
	bytes  int // of memory at each end
	shapes []nixlShape
	pings  int
	turns  turns
}

// nixlShape is one transfer: count blocks of a size. It is repeated until a sample has
// moved enough bytes to be timed.
type nixlShape struct{ block, count int }

func (s nixlShape) bytes() int { return s.block * s.count }

type planeScale struct {
	calls    int
	items    int // per round, over all streams
	streams  []int
	puts     int
	messages int
	turns    turns
}

type cpuScale struct {
	shapes         []cpuShape
	prefill        []int // prompt lengths, tokens
	context        int   // tokens, of the case with a context
	steps          int   // tokens that a sequence decodes at most
	window         time.Duration
	parallel       int // sequences decoded together
	parallelPrompt int // tokens
	parallelOutput int // tokens
	startPrompt    int // tokens, of the start
	starts         int // repetitions
	limitWindow    time.Duration
	readBytes      int
	turns          turns // of a model with one format and number of threads
}

type accuracyScale struct {
	tokens    int   // of the built-in text
	window    int   // tokens that are computed as one sequence
	slowBytes int64 // weights up to which slow variants are measured
}

// disaggModel returns a model large enough that computing takes longer than messages, and
// small enough for two workers on each of three nodes.
func disaggModel() model.Synthetic {
	m := syntheticModel(4)
	m.Vocab, m.ContextLen = 8192, 8192
	return m
}

// gpuDisaggModel returns the whole model, since GPUs are a thousand times as fast.
func gpuDisaggModel() model.Synthetic {
	m := syntheticModel(syntheticLayers)
	m.Vocab, m.ContextLen = 8192, 24576
	return m
}

// fullScale returns the sizes for a run of about ten minutes on two cores.
func fullScale() scale {
	return scale{
		engine: engineScale{
			synthetic: syntheticModel(syntheticLayers), cacheBytes: 256 << 20, prefill: []int{128, 512}, sequences: []int{1, 8}, context: 512,
			window: time.Second, caseLimit: 45 * time.Second, readBytes: 1 << 30,
			builtin: turns{5, 20 * time.Second}, large: turns{5, 130 * time.Second},
		},
		path: pathScale{
			prompt: 96, output: 32, concurrency: []int{1, 8}, requests: 8,
			mockOutput: 512, mockStreams: []int{1, 64}, mockAlone: 16,
			pace: 2 * time.Millisecond, pacedOutput: 256, pings: 200, turns: turns{5, 30 * time.Second},
		},
		nixl: nixlScale{bytes: 256 << 20, shapes: []nixlShape{
			{64 << 10, 1}, {64 << 10, 16}, {64 << 10, 256}, {1 << 20, 1}, {1 << 20, 16}, {1 << 20, 256}, {8 << 20, 1}, {8 << 20, 32}, {64 << 20, 1}, {64 << 20, 4},
		}, pings: 2000, turns: turns{7, 90 * time.Second}},
		plane: planeScale{calls: 2000, items: 50000, streams: []int{1, 64}, puts: 200, messages: 2000, turns: turns{5, 30 * time.Second}},
		disagg: disaggScale{
			model: disaggModel(), prompts: []int{128, 512, 2048}, streams: 4, output: 4096, prompt: 4096,
			idle: 3 * time.Second, turns: turns{5, 110 * time.Second},
		},
		onGPUs: disaggScale{
			model: gpuDisaggModel(), prompts: []int{512, 2048, 8192}, streams: 32, output: 8192, prompt: 16384,
			idle: 3 * time.Second, turns: turns{7, 60 * time.Second},
		},
		images: imagesScale{
			towers: towerShapes(), window: 2 * time.Second, limitWindow: 200 * time.Millisecond, encoders: turns{5, 60 * time.Second},
			model: seeingModel(smallTower()), images: []int{1, 4, 16}, encode: []int{0, 1, 2}, streams: 4, output: 4096, idle: 3 * time.Second,
			requests: 16, turns: turns{5, 240 * time.Second},
		},
		cpu: cpuScale{
			shapes: cpuShapes(), prefill: []int{128, 512, 2048}, context: 2048, steps: 512, window: time.Second,
			parallel: 16, parallelPrompt: 64, parallelOutput: 24, startPrompt: 128, starts: 3,
			limitWindow: 200 * time.Millisecond, readBytes: 1 << 30, turns: turns{5, 45 * time.Second},
		},
		accuracy: accuracyScale{tokens: 2048, window: 2048, slowBytes: 256 << 20},
		router:   routerScale{rate: 500, window: 10 * time.Second, workers: 8, tokens: 10_000, shares: 40, blocks: 25_000, turns: turns{5, 150 * time.Second}},
		fleet: fleetScale{
			axes: ScaleAxes(), points: map[string][]int{axisWorkers: {2, 8, 32, 128, 512, 1000}, axisFrontends: {1, 2, 4, 10}, axisNodes: {1, 2, 4, 8, 16}},
			workers: 128, processes: 4, blocks: 64, settle: 5 * time.Second, idle: time.Minute, requests: 500, changes: 20, orders: 10,
			timeout: 5 * time.Minute, turns: turns{1, time.Hour},
		},
	}
}

// quickScale returns the sizes for a run of less than a minute.
func quickScale() scale {
	return scale{
		engine: engineScale{
			synthetic: syntheticModel(4), cacheBytes: 256 << 20, prefill: []int{128, 512}, sequences: []int{1, 8}, context: 512,
			window: 300 * time.Millisecond, caseLimit: 3 * time.Second, readBytes: 512 << 20,
			builtin: turns{3, 5 * time.Second}, large: turns{3, 20 * time.Second},
		},
		path: pathScale{
			prompt: 96, output: 16, concurrency: []int{1, 8}, requests: 2,
			mockOutput: 128, mockStreams: []int{1, 64}, mockAlone: 8,
			pace: 2 * time.Millisecond, pacedOutput: 64, pings: 50, turns: turns{3, 6 * time.Second},
		},
		nixl:  nixlScale{bytes: 64 << 20, shapes: []nixlShape{{64 << 10, 1}, {64 << 10, 256}, {1 << 20, 64}, {8 << 20, 8}, {64 << 20, 1}}, pings: 500, turns: turns{3, 10 * time.Second}},
		plane: planeScale{calls: 500, items: 20000, streams: []int{1, 64}, puts: 50, messages: 500, turns: turns{3, 5 * time.Second}},
		disagg: disaggScale{
			model: disaggModel(), prompts: []int{128, 512}, streams: 4, output: 2048, prompt: 1024,
			idle: time.Second, turns: turns{3, 15 * time.Second},
		},
		onGPUs: disaggScale{
			model: gpuDisaggModel(), prompts: []int{512, 2048}, streams: 32, output: 8192, prompt: 8192,
			idle: time.Second, turns: turns{3, 15 * time.Second},
		},
		images: imagesScale{
			towers: towerShapes()[:1], window: time.Second, limitWindow: 50 * time.Millisecond, encoders: turns{3, 10 * time.Second},
			model: seeingModel(smallTower()), images: []int{1, 4}, encode: []int{0, 1}, streams: 4, output: 4096, idle: time.Second,
			requests: 4, turns: turns{3, 20 * time.Second},
		},
		cpu: cpuScale{
			shapes: cutShapes(4), prefill: []int{128, 512}, context: 2048, steps: 256, window: 200 * time.Millisecond,
			parallel: 16, parallelPrompt: 64, parallelOutput: 24, startPrompt: 128, starts: 1,
			limitWindow: 50 * time.Millisecond, readBytes: 256 << 20, turns: turns{3, 10 * time.Second},
		},
		accuracy: accuracyScale{tokens: 512, window: 512, slowBytes: 64 << 20},
		router:   routerScale{rate: 100, window: 5 * time.Second, workers: 8, tokens: 10_000, shares: 40, blocks: 25_000, turns: turns{2, 30 * time.Second}},
		fleet: fleetScale{
			axes: ScaleAxes(), points: map[string][]int{axisWorkers: {2, 8, 32, 128}, axisFrontends: {1, 2, 4}, axisNodes: {1, 2, 4}},
			workers: 32, processes: 2, blocks: 64, settle: time.Second, idle: 5 * time.Second, requests: 100, changes: 5, orders: 3,
			timeout: time.Minute, turns: turns{1, time.Hour},
		},
	}
}
