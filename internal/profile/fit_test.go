package profile

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randomWork(r *rand.Rand) (w Work) {
	for range r.IntN(20) {
		w.Add(r.IntN(4000), 1)
	}
	for range r.IntN(3) {
		w.Add(r.IntN(2000), 2+r.IntN(500))
	}
	return w
}

// Costs come back from steps that were made with them, and with 5 % of noise nearly so.
func TestFitFindsCosts(t *testing.T) {
	want := example().Step
	r := rand.New(rand.NewPCG(1, 2))
	for _, noise := range []float64{0, 0.05} {
		var samples []Sample
		for range 3000 {
			w := randomWork(r)
			samples = append(samples, Sample{Work: w, Seconds: want.StepSeconds(w) * (1 + noise*r.NormFloat64())})
		}
		got, q, err := Fit(samples)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range got.all() {
			// The error of a mean of 3000 is below 2 % of the noise; costs that hide behind others get more.
			if truth := *want.all()[j]; math.Abs(*v/truth-1) > 1e-6+2*noise {
				t.Errorf("noise %v: cost %d is %v, want %v", noise, j, *v, truth)
			}
		}
		if q.Samples != 3000 || q.MeanError > 1e-9+noise || math.Abs(q.Bias) > 1e-9+noise*noise*2 || q.P95Error > 1e-9+2.2*noise || len(q.Unseen) > 0 {
			t.Errorf("noise %v: %+v", noise, q)
		}
	}
}

// No cost is negative: the best of those that may be stands where the least squares would be
// below zero. No random change of the costs is better.
func TestFitKeepsCostsAboveZero(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	zeros := 0
	for range 20 {
		var samples []Sample
		for range 40 {
			w := randomWork(r)
			samples = append(samples, Sample{Work: w, Seconds: (1e-3 + 1e-5*float64(w.Tokens)) * math.Exp(r.NormFloat64())})
		}
		measured := make([]float64, len(samples))
		for i, s := range samples {
			measured[i] = s.Seconds
		}
		found, _, ok := fit(samples, measured)
		if !ok {
			t.Fatal("no costs")
		}
		got := found.costs()
		least := squares(got, samples)
		for range 300 {
			other := got
			for _, v := range other.all() {
				if *v < 0 {
					t.Fatalf("%+v", got)
				}
				*v = max(0, *v*(1+0.1*r.NormFloat64())+1e-9*r.NormFloat64())
			}
			if s := squares(other, samples); s < least*(1-1e-9) {
				t.Fatalf("%+v leaves %v, %+v only %v", got, least, other, s)
			}
		}
		for _, v := range got.all() {
			if *v == 0 {
				zeros++
			}
		}
	}
	if zeros == 0 {
		t.Error("no bound was needed: this test shows nothing")
	}
}

// In a load whose requests are all alike, prompts and tokens of answers come in nearly the same proportion in all windows, and
// chance would say that one of them takes no time. Both do, and the whole is predicted well. Where one of them really takes
// none, beyond chance, it is found so.
func TestFitGivesAllWorkTime(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	truth := Costs{Step: 1e-4, Decode: 1e-3, Token: 1e-4}
	for run := range 200 {
		var samples []Sample
		predicted, measured := 0.0, 0.0
		for range 5 + r.IntN(20) {
			n := 15 + r.IntN(10)
			s := Sample{Steps: 11 * n, Work: Work{Decodes: 10*n + r.IntN(3), DecodeContext: 500 * n, Tokens: 49*n + r.IntN(20), ChunkContext: 1200 * n}}
			s.Seconds = unknowns{truth.Step, truth.Decode, truth.DecodeContext, truth.Token, truth.ChunkContext}.predict(s) * math.Exp(0.3*r.NormFloat64())
			samples = append(samples, s)
		}
		got, _, err := Fit(samples)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			predicted, measured = predicted+unknowns{got.Step, got.Decode, got.DecodeContext, got.Token, got.ChunkContext}.predict(s), measured+s.Seconds
		}
		decode, prompt := got.StepSeconds(Work{Decodes: 1, DecodeContext: 50}), got.StepSeconds(Work{Tokens: 49, ChunkContext: 1200})
		if decode <= 0 || prompt <= 0 || math.Abs(predicted/measured-1) > 0.1 {
			t.Errorf("run %d: %+v: a token of an answer takes %v s and a prompt %v s; %.3v s for %.3v", run, got, decode, prompt, predicted, measured)
		}
	}
	var samples []Sample
	for i := range 50 {
		s := Sample{Work: Work{Decodes: 1 + i%7, DecodeContext: 100, Tokens: 1 + i*i%300, ChunkContext: 900}}
		s.Seconds = 1e-3 * float64(s.Work.Decodes) * (1 + 0.01*r.NormFloat64())
		samples = append(samples, s)
	}
	if got, _, err := Fit(samples); err != nil || got.StepSeconds(Work{Tokens: 300, ChunkContext: 900}) > 1e-4 || math.Abs(got.Decode/1e-3-1) > 0.02 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What is predicted of many samples whose errors came by chance is their mean, also where the errors
// are large: weighed by what was measured, it would be a fifth too low here.
func TestFitIsNotBiased(t *testing.T) {
	want := example().Step
	r := rand.New(rand.NewPCG(7, 8))
	var samples []Sample
	measured, truth := 0.0, 0.0
	for range 4000 {
		w := randomWork(r)
		s := Sample{Work: w, Seconds: want.StepSeconds(w) * math.Exp(0.35*r.NormFloat64()-0.35*0.35/2)} // mean 1
		samples = append(samples, s)
		measured, truth = measured+s.Seconds, truth+want.StepSeconds(w)
	}
	got, _, err := Fit(samples)
	if err != nil {
		t.Fatal(err)
	}
	predicted := 0.0
	for _, s := range samples {
		predicted += got.StepSeconds(s.Work)
	}
	// A mean of 4000 has an error of 0.35/sqrt(4000), or 0.6 %; three of these.
	if math.Abs(predicted/truth-1) > 0.018 || math.Abs(measured/truth-1) > 0.018 {
		t.Errorf("%.4v s predicted, %.4v s measured, %.4v s true", predicted, measured, truth)
	}
}

func squares(c Costs, samples []Sample) (sum float64) {
	for _, s := range samples {
		off := c.StepSeconds(s.Work)/s.Seconds - 1
		sum += off * off
	}
	return sum
}

func TestFitOfLittle(t *testing.T) {
	got, q, err := Fit([]Sample{{Work: Work{Decodes: 1, DecodeContext: 10}, Seconds: 0.01}, {Work: Work{Decodes: 1, DecodeContext: 10}, Seconds: 0.01}})
	if err != nil || math.Abs(got.StepSeconds(Work{Decodes: 1, DecodeContext: 10})-0.01) > 1e-12 || !slices.Equal(q.Unseen, []string{"token_s", "chunk_context_s"}) {
		t.Errorf("%+v, %+v, %v", got, q, err)
	}
	for _, bad := range [][]Sample{nil, {{}}, {{Seconds: math.NaN()}}, {{Seconds: math.Inf(1)}}} {
		if _, _, err := Fit(bad); !errors.Is(err, ErrSamples) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Sums of steps show the same costs as the steps themselves.
func TestFitFindsCostsInSums(t *testing.T) {
	want := example().Step
	r := rand.New(rand.NewPCG(5, 6))
	var samples []Sample
	for range 40 {
		var s Sample
		for range 1 + r.IntN(200) {
			w := randomWork(r)
			s.Seconds += want.StepSeconds(w)
			s.Steps++
			s.Work = Work{s.Work.Decodes + w.Decodes, s.Work.DecodeContext + w.DecodeContext, s.Work.Tokens + w.Tokens, s.Work.ChunkContext + w.ChunkContext}
		}
		samples = append(samples, s)
	}
	got, q, err := Fit(samples)
	if err != nil || q.MeanError > 1e-6 {
		t.Fatalf("%+v %v", q, err)
	}
	for j, v := range got.all() {
		if truth := *want.all()[j]; math.Abs(*v/truth-1) > 1e-4 {
			t.Errorf("cost %d is %v, want %v", j, *v, truth)
		}
	}
}

// What a request takes beside its steps comes back from requests among steps; without any it is 0.
func TestFitFindsWhatRequestsTake(t *testing.T) {
	p := example()
	const beside = 7e-3
	var samples []Sample
	for _, isl := range []int{20, 90, 150, 500, 1001, 2500} {
		w, steps := p.Limits.Prompt(0, isl)
		samples = append(samples, Sample{Work: w, Steps: steps, Requests: 1, Seconds: p.prefill(isl) + beside})
	}
	for _, n := range []int{1, 4, 8} {
		for _, context := range []int{100, 2000} {
			w := Work{Decodes: n, DecodeContext: n * context}
			samples = append(samples, Sample{Work: w, Seconds: p.Step.StepSeconds(w)})
		}
	}
	got, request, q, err := FitRequests(samples)
	if err != nil || math.Abs(request/beside-1) > 1e-6 || q.MeanError > 1e-6 || len(q.Unseen) > 0 {
		t.Fatalf("%v %+v %+v %v", request, got, q, err)
	}
	for j, v := range got.all() {
		if truth := *p.Step.all()[j]; math.Abs(*v/truth-1) > 1e-6 {
			t.Errorf("%s is %v, want %v", costNames[j], *v, truth)
		}
	}
	if _, request, _, err := FitRequests(samples[6:]); err != nil || request != 0 {
		t.Errorf("%v %v", request, err)
	}
}

// The steps of a prompt are its chunks one after the other.
func TestStepsOfAPrompt(t *testing.T) {
	for _, chunk := range []int{1, 2, 3, 100} {
		for _, start := range []int{0, 1, 64} {
			for _, isl := range []int{0, 1, 64, 65, 66, 70, 350} {
				var want Work
				steps := 0
				for at := start; at < isl; at += chunk {
					want.Add(at, min(chunk, isl-at))
					steps++
				}
				if got, n := (Limits{MaxBatchTokens: chunk}).Prompt(start, isl); got != want || n != steps {
					t.Errorf("%d to %d by %d: %+v in %d steps, want %+v in %d", start, isl, chunk, got, n, want, steps)
				}
			}
		}
	}
}
